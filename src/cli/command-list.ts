/**
 * The commands, in the order of the help. Each is loaded when it is called or listed: `leasehold run` is started by cron and by scripts, and must not
 * load the server and everything else first. A new command is its file and one line here.
 */
import type { Command } from 'commander'

type AddCommand = (program: Command) => void

export const COMMANDS: Readonly<Record<string, () => Promise<AddCommand>>> = {
  serve: async () => (await import('./command/serve.ts')).serve,
  run: async () => (await import('./command/run.ts')).run,
  elect: async () => (await import('./command/elect.ts')).elect,
  demo: async () => (await import('./command/demo.ts')).demo,
  ls: async () => (await import('./command/ls.ts')).ls,
  show: async () => (await import('./command/show.ts')).show,
  watch: async () => (await import('./command/watch.ts')).watch,
  history: async () => (await import('./command/history.ts')).history,
  explain: async () => (await import('./command/explain.ts')).explain,
  register: async () => (await import('./command/register.ts')).register,
  discover: async () => (await import('./command/discover.ts')).discover,
  pool: async () => (await import('./command/pool/pool.ts')).pool,
  mcp: async () => (await import('./command/mcp.ts')).mcp,
  agents: async () => (await import('./command/agents.ts')).agents,
  guard: async () => (await import('./command/guard.ts')).guard,
  init: async () => (await import('./command/init.ts')).init,
  revoke: async () => (await import('./command/operate.ts')).revoke,
  break: async () => (await import('./command/operate.ts')).breakHold,
  policy: async () => (await import('./command/policy.ts')).policy,
  key: async () => (await import('./command/key.ts')).key,
  upgrade: async () => (await import('./command/upgrade.ts')).upgrade,
  plan: async () => (await import('./command/plan.ts')).plan,
  doctor: async () => (await import('./command/doctor.ts')).doctor,
  completion: async () => (await import('./command/completion.ts')).completion,
  backup: async () => (await import('./command/backup.ts')).backup,
  restore: async () => (await import('./command/restore.ts')).restore,
  migrate: async () => (await import('./command/migrate.ts')).migrate,
  certify: async () => (await import('./command/certify.ts')).certify,
}
