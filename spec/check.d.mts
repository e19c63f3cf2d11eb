export interface Search {
  readonly kind: 'holds' | 'breaks' | 'reaches'
  readonly flags: readonly string[]
  /** How many states a full search meets; only where `kind` is `holds`. */
  readonly states?: number
  readonly sentence: string
}
export interface Model {
  readonly name: string
  readonly searches: readonly Search[]
}
export function models(): Promise<readonly Model[]>
export function prepare(): Promise<string | undefined>
export function check(
  model: string,
  search: Search,
): Promise<{ readonly wrong: string | undefined; readonly states: number; readonly seconds: number }>
/** `work` has what spin wrote. `compiler` is a program and its options. */
export function compiled(
  work: string,
  name: string,
  compiler: readonly string[],
): Promise<{ readonly program?: string; readonly wrong?: string }>
