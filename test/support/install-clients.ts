/**
 * Installs every set of other people's clients, before the tests that use them. `npm test` runs it beside the build and the other tests, with a low priority; a
 * test that comes first waits for the set that it needs, or installs it. What cannot be installed is left to those tests, which skip or fail.
 */
import { test } from 'vitest'
import * as sets from './client-sets.ts'
import { otherNode } from './kernel/other-node.ts'

/** The tools of the Python client's own checks. */
const { environments: pythonTools } = await import(new URL('../../scripts/python.mjs', import.meta.url).href)
const { installedConsul: _, helm: _helm, kubeconform: _kubeconform, kubernetesProgram, kubernetesRust, ...others } = sets
/** Installations that take longest to compile come first, and those that are only downloaded beside them. */
const installations = {
  kubernetesProgram, // with Helm and kubeconform
  pythonTools: () => pythonTools(),
  ...others,
  node22: () => otherNode(22),
  node24: () => otherNode(24),
  kubernetesRust,
}

test.concurrent.each(Object.entries(installations))('%s is installed', { timeout: 3_000_000 }, async (_name, install) => {
  await install()
})
