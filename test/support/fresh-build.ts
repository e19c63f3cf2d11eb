/** For tests that read or run the built package. A test of an old build says nothing about the source, and may pass by mistake. */

/** A project of scripts/build.mjs: its configuration, and where its sources are compiled to. */
export interface Project {
  readonly config: string
  readonly out: string
  readonly sources: Readonly<Record<string, string>>
}

const build = (await import(new URL('../../scripts/build.mjs', import.meta.url).href)) as {
  isStale(project: Project): boolean
  projectsFor(file: string): readonly Project[]
}

/** Returns whether an output of the package is missing or older than its source. */
export function isBuildStale(): boolean {
  return build.projectsFor('dist/').some(build.isStale)
}

/** Throws if an output of the package is missing or older than its source. */
export function requireFreshBuild(projects: readonly Project[] = build.projectsFor('dist/')): void {
  for (const project of projects)
    if (build.isStale(project)) throw new Error(`${project.out}/ is not the build of the present source. Run: npm run build`)
}
