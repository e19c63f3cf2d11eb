/** The same request in other languages: what to paste into a shell or a program to do what the dashboard shows. */

export interface Snippet {
  readonly language: 'CLI' | 'curl' | 'TypeScript' | 'Python'
  readonly text: string
}

/** A text as one word of a POSIX shell. */
export function shellWord(text: string): string {
  return /^[A-Za-z0-9_./:@%+=,-]+$/.test(text) && !text.startsWith('-') ? text : `'${text.replaceAll("'", `'\\''`)}'`
}

/** A text as a literal of TypeScript and of Python: control characters and those outside of the basic plane are escaped by both in the same way. */
function literal(text: string): string {
  return JSON.stringify(text).replaceAll(/[\u007f-\u009f\u2028\u2029]/g, found => `\\u${found.charCodeAt(0).toString(16).padStart(4, '0')}`)
}

/** Holding a resource, and reading its state. `origin` is the address of the server. */
export function snippetsFor(resource: string, origin: string): readonly Snippet[] {
  const path = resource.split('/').map(encodeURIComponent).join('/')
  const server = origin
    .replace(/^http/, 'leasehold')
    .replace(/^leaseholds?(?=:)/, found => (origin.startsWith('https') ? 'leaseholds' : found))
  const body = JSON.stringify({ resources: [resource], holder: 'me', ttl: '30s' })
  return [
    {
      language: 'CLI',
      text: `leasehold explain ${shellWord(resource)} --store ${server}\nleasehold run ${shellWord(resource)} --ttl 30s --store ${server} -- your-command`,
    },
    {
      language: 'curl',
      text: `curl -s ${shellWord(`${origin}/v1/resources/${path}`)}\ncurl -s ${origin}/v1/leases -H 'content-type: application/json' -d ${shellWord(body)}`,
    },
    {
      language: 'TypeScript',
      text: `import { connect } from 'leasehold'\n\nawait using leases = await connect('${server}')\nawait leases.request(${literal(resource)}, { ttl: '30s' }, async lease => {\n  // write with lease.token, stop when lease.signal fires\n})`,
    },
    {
      language: 'Python',
      text: `import leasehold_client\n\nwith leasehold_client.connect("${server}") as leases:\n    with leases.request(${literal(resource)}, ttl=30) as lease:\n        pass  # write with lease.token, call lease.assert_held()`,
    },
  ]
}
