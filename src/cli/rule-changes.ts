/** Says what each version of the rules changed, for operators who are about to raise them. A new version gets its line here (docs/versioning.md). */
export const RULE_CHANGES: Readonly<Record<number, string>> = {
  1: 'the rules of version 0.1.0',
}
