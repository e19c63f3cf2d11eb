/** `import … from 'leasehold/agent'` offers these names: claims of coding agents, which `leasehold mcp` and `leasehold guard` are built on. */
export {
  Agent,
  type AgentOptions,
  type ClaimOptions,
  type ClaimView,
  type Mine,
  type Released,
  type TurnEnd,
  type WhoAmI,
} from './agent.ts'
export type { ClaimNames, Workspace } from './names.ts'
export type { HolderView, NameView } from './neighbours.ts'
export type { LostClaim, Notice, NoticeKind } from './notices.ts'
export type { AgentSession, AliveBy, BoundProcess } from './session.ts'
export type { AgentTakeRequest, TakenMember } from './take.ts'
