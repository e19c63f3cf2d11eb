/**
 * Mistyped commands, options and addresses: each is refused before anything is done, with what was meant and what to type. A table has the arguments, the
 * exit code, and texts of the message and of its last line. Its first row runs in a process of its own, as for users.
 */
import { execFileSync } from 'node:child_process'
import { copyFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { COMMANDS } from '../../src/cli/command-list.ts'
import { Place } from '../support/cli.ts'
import { describeWith, freePorts, programs } from '../support/engine.ts'

const SLOW = 120_000

type Row = readonly [args: readonly string[], code: number, said: RegExp | string, last: RegExp | string]

async function checkAll(here: Place, rows: readonly Row[]): Promise<void> {
  for (const [i, [args, expected, said, last]] of rows.entries()) {
    const { code, stdout, stderr } = await (i === 0 ? here.run(args) : here.answer(args))
    const lines = stderr.trimEnd().split('\n')
    const about = `leasehold ${args.join(' ')}`
    expect([about, code, stdout], stderr).toEqual([about, expected, ''])
    expect(lines, `${about}: what happened, what it means, what to do next`).toHaveLength(3)
    if (typeof said === 'string') expect(lines[0], about).toContain(said)
    else expect(lines[0], about).toMatch(said)
    if (typeof last === 'string') expect(lines[2], about).toBe(`  ${last}`)
    else expect(lines[2], about).toMatch(last)
    expect(stderr, about).not.toMatch(/move it away|COMMAND|at .*\.js:\d+/)
  }
}

test('a mistyped command or option is answered with the line to type instead', async () => {
  await using here = new Place()
  await checkAll(here, [
    [['rnu', 'x', '--', 'echo', 'a b'], 64, 'there is no command rnu. Did you mean run?', "Write: leasehold run x -- echo 'a b'"],
    [['lock', 'x', '--', 'true'], 64, 'Did you mean run?', 'Write: leasehold run x -- true'],
    [['list'], 64, 'Did you mean ls?', 'Write: leasehold ls'],
    [['unlock', 'x'], 64, 'Did you mean break?', 'Write: leasehold break x'],
    [['policy', 'gett', 'jobs'], 64, 'there is no command gett. Did you mean get?', 'Write: leasehold policy get jobs'],
    [['qwertyuiop'], 64, 'there is no command qwertyuiop', 'To see the commands, run: leasehold help'],
    [['help', 'hstory'], 64, 'Did you mean history?', 'Write: leasehold help history'],
    [
      ['run', 'x', '--tll', '3s', '--', 'true'],
      64,
      'run has no option --tll. Did you mean --ttl?',
      /^ {2}Write: leasehold run x --ttl 3s -- true/,
    ],
    [['run', 'x', '--tll=3s', '--', 'true'], 64, 'Did you mean --ttl?', /^ {2}Write: leasehold run x --ttl=3s -- true/],
    [['ls', '--jsn'], 64, 'ls has no option --jsn. Did you mean --json?', 'Write: leasehold ls --json'],
    [['ls', '--qwertyuiop'], 64, 'ls has no option --qwertyuiop', 'To see its options, run: leasehold help ls'],
    [['policy', 'set', '--qwertyuiop'], 64, 'policy set has no option', 'To see its options, run: leasehold help policy set'],
    [['run', 'x', '--wait', '--', 'true'], 64, '--wait needs a value', /--wait <duration>/],
    [['run', 'x', '--wait', '--ttl', '3s', '--', 'true'], 64, '--wait needs a value', /--wait <duration>/],
    [['run', 'x', '--wait'], 64, /--wait/, 'For its options, run: leasehold help run'],
    [['run'], 64, 'run needs a name', 'Write: leasehold run <name...> -- <cmd...>'],
    [['run', 'x'], 64, 'no command to run was given', 'Write it after --: leasehold run NAME -- CMD…'],
    [['run', '--', 'true'], 64, 'no resource was named', /leasehold run NAME -- CMD/],
    [
      ['run', ...Array.from({ length: 257 }, (_, i) => `a/${i}`), '--', 'true'],
      64,
      /257 resources in one request, more than 256: .*--covers/,
      'For what it takes, run: leasehold help run',
    ],
    [['show'], 64, 'show needs a name', 'Write: leasehold show <name>'],
    [['ls', 'a', 'b'], 64, /too many arguments/, 'Write: leasehold ls [prefix]'],
    [['policy', 'set', 'x'], 64, 'policy set needs a rules', 'Write: leasehold policy set <prefix> <rules...>'],
    [['run', 'x', '--on-lost', 'explode', '--', 'true'], 64, /kill, term, ignore/, 'For its options, run: leasehold help run'],
    [
      ['run', 'x', '--ttl', '5', '--', 'true'],
      64,
      "--ttl '5' has no unit: write '5s' for seconds",
      'For what it takes, run: leasehold help run',
    ],
    [['run', 'x', '--ttl', 'soon', '--', 'true'], 64, '--ttl must be', 'For what it takes, run: leasehold help run'],
    [['run', 'x', '--units', '0', '--', 'true'], 64, '--units takes a whole number of at least 1, not 0', 'Write, for example: --units 1'],
    [['run', 'x', '--priority', '9999', '--', 'true'], 64, 'from -1000 to 1000', 'Write, for example: --priority 1'],
    [['run', 'x', '-E', '999', '--', 'true'], 64, 'from 0 to 255', /Choose one/],
    [['run', '/x', '--', 'true'], 64, 'slash', /leasehold help run|segments/],
    [['watch', '--after', 'x'], 64, '--after takes a whole number, not x', 'Write, for example: --after 1'],
    [['serve', '--listen', 'nowhere'], 64, 'write host:port', 'For what it takes, run: leasehold help serve'],
    [['completion', 'tcsh'], 64, 'no completion for tcsh', /leasehold completion bash/],
    [['key', 'create', '--name', 'ci'], 64, '--allow', 'For its options, run: leasehold help key create'],
    [
      ['key', 'create', '--name', 'ci', '--allow', 'aquire'],
      64,
      "there is no verb 'aquire'. The verbs are acquire",
      /leasehold help key create/,
    ],
    [['policy', 'set', 'jobs', 'ttlmax=1h'], 64, 'there is no rule ttlmax. Did you mean ttlMax?', 'Write: ttlMax=1h'],
    [['policy', 'set', 'jobs', 'lock-delay=1h'], 64, 'Did you mean lockDelay?', 'Write: lockDelay=1h'],
    [['policy', 'set', 'jobs', 'qwertyuiop=1'], 64, 'there is no rule qwertyuiop', /The rules are: ttlMin, ttlMax/],
  ])
  expect(existsSync(here.file('leasehold')), 'nothing was opened').toBe(false)
})

test('what is not there is answered with the command that lists what is', async () => {
  await using here = new Place()
  await checkAll(here, [
    [['policy', 'unset', 'jobs'], 1, 'there is no policy for jobs', 'To see the policies, run: leasehold policy get'],
    [['key', 'revoke', 'ci'], 1, 'there is no key ci', 'To see the keys, run: leasehold key ls'],
    [['break', 'jobs/a'], 1, 'jobs/a is not held', 'To see the present leases, run: leasehold ls'],
    [['revoke', 'jobs'], 1, 'no lease matches', 'To see the present leases, run: leasehold ls'],
  ])
})

test('options that contradict each other are refused, and nothing is run', async () => {
  await using here = new Place()
  const run = (...options: string[]) => ['run', 'x', ...options, '--', 'sh', '-c', 'echo ran']
  await checkAll(here, [
    [run('--no-wait', '--wait', '3s'), 64, '--wait and --no-wait contradict each other', /Use --wait DURATION/],
    [run('--wait', '3s', '--no-wait'), 64, '--wait and --no-wait contradict each other', /Use --wait DURATION/],
    [run('--skip-ok', '-E', '3'), 64, 'contradict each other', 'Use one of them.'],
    [run('--shared', '--units', '2'), 64, 'contradict each other', 'Use one of them.'],
    [run('--slots', '0-3', '--shared'), 64, 'contradict each other', 'Use one of them.'],
    [run('--slots', '9-3'), 64, '--slots takes a range', /lowest and the highest/],
    [run('--ttl', '1s', '--grace', '5s'), 64, '--grace is longer than --ttl', /shorter --grace/],
    [run('--class', 'jobs'), 64, '--class without --ttl auto', 'Write: --ttl auto --class CLASS'],
    [['explain', 'x', '--class', 'jobs'], 64, '--class without --term', /explain --term/],
    [['serve', '--tls-cert', 'x'], 64, 'need each other', 'Use both, or neither.'],
    [['serve', '--dns-domain', 'x'], 64, '--dns-domain without --dns', 'Add --dns ADDRESS.'],
    [['revoke', '17', '--of', 'ann'], 64, /--of/, /./],
    [['certify', 'file:x', '--store', 'file:y'], 64, 'certify has no option --store', /./],
  ])
  expect(existsSync(here.file('leasehold')), 'nothing was opened').toBe(false)
})

test('every command that is mistyped by two swapped letters is recognised', async () => {
  await using here = new Place()
  const names = Object.keys(COMMANDS).filter(name => name.length > 2)
  await checkAll(
    here,
    names.map(name => {
      const typo = name[0] + name[2]! + name[1]! + name.slice(3)
      return [typo === name ? [`${name}x`] : [typo], 64, `Did you mean ${name}?`, `Write: leasehold ${name}`] as const
    }),
  )
})

describeWith([programs.openssl], 'an address that is wrong', () => {
  const here = new Place()
  const other = createServer((_, response) => response.writeHead(404).end('<h1>not here</h1>'))
  const ports = { plain: '', tls: '', other: '', free: '' }

  beforeAll(async () => {
    const [cert, key] = [here.file('cert.pem'), here.file('key.pem')]
    const made = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2', '-subj', '/CN=test']
    execFileSync('openssl', ['req', '-x509', ...made, '-addext', 'subjectAltName=IP:127.0.0.1', '-keyout', key, '-out', cert], {
      stdio: 'pipe',
    })
    const serve = ['serve', '--store', 'memory:', '--listen', '127.0.0.1:0']
    const [plain, tls] = [here.start(serve), here.start([...serve, '--tls-cert', cert, '--tls-key', key])]
    ports.plain = (await plain.printed(/http:\/\/127\.0\.0\.1:(\d+)\//))[1]!
    ports.tls = (await tls.printed(/https:\/\/127\.0\.0\.1:(\d+)\//))[1]!
    await new Promise<void>(resolve => other.listen(0, '127.0.0.1', resolve))
    ports.other = String((other.address() as AddressInfo).port)
    ports.free = String((await freePorts(1))[0])
  }, SLOW)

  afterAll(async () => {
    other.close()
    await here[Symbol.asyncDispose]()
  })

  const ls = (url: string) => ['ls', '--store', url]

  test('a server: TLS to a plain port, plain to a TLS port, another server, no server', async () => {
    const at = (port: string) => `127.0.0.1:${port}`
    const [plain, tls, another, none] = [at(ports.plain), at(ports.tls), at(ports.other), at(ports.free)]
    await checkAll(here, [
      [ls(`leasehold://${tls}`), 69, 'requires TLS', `Write: --store leaseholds://${tls}`],
      [ls(`leaseholds://${plain}`), 69, 'does not speak TLS', `Write: --store leasehold://${plain}`],
      [ls(`http://${tls}`), 69, 'requires TLS', `Write: --store https://${tls}`],
      [ls(`https://${plain}`), 69, 'does not speak TLS', `Write: --store http://${plain}`],
      [ls(`https://${tls}`), 69, 'not trusted here', /--store 'leaseholds:\/\/.*\?ca=FILE', or NODE_EXTRA_CA_CERTS=FILE/],
      [ls(`leaseholds://${tls}`), 69, 'not trusted here', /\?ca=FILE/],
      [ls(`http://${another}`), 69, 'which no Leasehold server does', /Another program answers at http:\/\/127.*7420/],
      [ls(`leasehold://${another}`), 69, /./, /Another program may answer at 127.*7420/],
      [ls(`leasehold://${none}`), 69, 'cannot be reached', `Start one there: leasehold serve --listen ${none}, or correct the address.`],
      [ls(`http://${none}`), 69, 'ECONNREFUSED', `Start one there: leasehold serve --listen ${none}, or correct the address.`],
      [ls(`leasehold:///no/such.sock`), 69, 'cannot be reached', /Start the server with --socket \/no\/such.sock/],
      [ls(`http://${plain}/page`), 1, 'no such path', `Write: --store http://${plain}`],
      [ls(`redis://${plain}`), 69, 'this is Leasehold', `Write: --store leasehold://${plain}`],
      [ls(`etcd://${plain}`), 78, 'does not answer as etcd', /./],
      [ls('leasehold://127.0.0.1:99999'), 64, 'is not host:port', /./],
      [ls(plain), 64, `did you mean leasehold://${plain}?`, `Write: --store leasehold://${plain}`],
      [ls(`htp://${plain}`), 64, `did you mean http://${plain}?`, `Write: --store http://${plain}`],
      [ls('unix:/run/leasehold.sock'), 64, 'did you mean', 'Write: --store leasehold:///run/leasehold.sock'],
      [ls('sqlite:leases.db'), 64, 'did you mean file:leases.db?', 'Write: --store file:leases.db'],
      [ls('qwerty://host'), 64, 'is not a URL of a store or server: use memory: or file:PATH', /./],
      [ls(''), 64, 'an empty string is not a URL', /./],
    ])
  })

  test('a path: a folder, a file that is not ours, a device, a name without a scheme; what is there stays as it was', async () => {
    const folder = here.file('folder')
    mkdirSync(folder)
    const [text, binary, database] = [here.file('text'), here.file('binary'), here.file('other.db')]
    writeFileSync(text, 'root:x:0:0\n'.repeat(20))
    copyFileSync('/bin/true', binary)
    // The header of a database of another program: SQLite's magic, 3 pages, another application id.
    const header = Buffer.alloc(4_096 * 3)
    header.write('SQLite format 3\0', 'latin1')
    header.writeUInt32BE(3, 28)
    header.writeUInt32BE(0x47504b47, 68)
    writeFileSync(database, header)
    const before = [text, binary, database].map(path => readFileSync(path))
    const instead = `Write: --store file:${here.file('leasehold.db')}`
    await checkAll(here, [
      [ls(`file:${folder}`), 64, 'is a folder', `Write: --store file:${folder}/leasehold.db`],
      [ls(`file:${text}`), 64, 'is not a Leasehold file, but a file of another kind', instead],
      [ls(`file:${binary}`), 64, 'is not a Leasehold file', instead],
      [ls(`file:${database}`), 64, 'but a database of another program', instead],
      [['backup', 'x', '--store', `file:${text}`], 64, 'is not a Leasehold file', instead],
      [['serve', '--store', `file:${database}`], 64, 'is not a Leasehold file', instead],
      [ls('file:/dev/null'), 64, 'not a plain file', /./],
      [ls('file:'), 64, 'file: needs a path', /./],
      [ls(folder), 64, `did you mean file:${folder}?`, `Write: --store file:${folder}`],
      [ls('file://host/x'), 64, 'not a file on this machine', /./],
    ])
    expect([text, binary, database].map(path => readFileSync(path))).toEqual(before)
  })

  test('a wrong address from the environment is corrected there', async () => {
    const { code, stderr } = await here.run(['ls'], { env: { LEASEHOLD_URL: `leasehold://127.0.0.1:${ports.tls}` } })
    expect([code, stderr]).toEqual([
      69,
      expect.stringContaining(`Correct it in the environment (LEASEHOLD_URL): leaseholds://127.0.0.1:${ports.tls}`),
    ])
  })
})
