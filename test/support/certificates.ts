/**
 * Node reads the file that NODE_EXTRA_CA_CERTS names at every start, whether it will need it or not. With the authorities of a whole system, that takes twice as
 * much CPU as the rest of the start, and the tests start thousands of processes, which talk only to this machine. So the groups of tests run without the
 * variable, and what downloads packages gets it back.
 */

/** Where it is kept meanwhile. Tests remove the variables of Leasehold from what they start. */
const KEPT = 'TEST_EXTRA_CA_CERTS'

/** For this process and all that it starts. */
export function setCertificatesAside(env: NodeJS.ProcessEnv = process.env): void {
  const { NODE_EXTRA_CA_CERTS } = env
  if (NODE_EXTRA_CA_CERTS === undefined) return
  env[KEPT] = NODE_EXTRA_CA_CERTS
  delete env.NODE_EXTRA_CA_CERTS
}

/** The environment of a program that downloads with Node, such as npm. */
export function downloading(env: NodeJS.ProcessEnv = process.env): NodeJS.ProcessEnv {
  const { [KEPT]: kept, ...others } = env
  return kept === undefined ? env : { ...others, NODE_EXTRA_CA_CERTS: kept }
}
