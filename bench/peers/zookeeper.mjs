// ZooKeeper, one server. A lock is an ephemeral node: created if it does not exist, deleted at the end.
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import { folder, freePort, start } from '../engine.mjs'
import { debianProgram, mavenFiles, npmPackages, versionOf } from './provide.mjs'

const VERSION = '3.9.6'
/** A server that speaks plain TCP and has no admin page needs these files. */
const FILES = [
  [
    `org/apache/zookeeper/zookeeper/${VERSION}/zookeeper-${VERSION}.jar`,
    '09bdf93be7c0b5b7cd9fe51bee6abe424796cd5aaf75cf0c10bbd6f1273562ee',
  ],
  [
    `org/apache/zookeeper/zookeeper-jute/${VERSION}/zookeeper-jute-${VERSION}.jar`,
    '74f9cb1e4ba899ecc4b816201b4afd1c63c256705bd9176393fac4071597c75f',
  ],
  ['org/slf4j/slf4j-api/1.7.36/slf4j-api-1.7.36.jar', 'd3ef575e3e4979678dc01bf1dcce51021493b4d11fb7f1be8ad982877c16a1c0'],
  ['org/slf4j/slf4j-nop/1.7.36/slf4j-nop-1.7.36.jar', 'c214958b07816cb4412b30c7bdbd4308ffdc6ba2a83767b8f3a9229cbd9274d6'],
  [
    'io/dropwizard/metrics/metrics-core/4.1.12.1/metrics-core-4.1.12.1.jar',
    'cec34936faa625039f4e46123eccaa10a9eb9d9a40c6075830cd81330e259cf9',
  ],
  ['org/xerial/snappy/snappy-java/1.1.10.5/snappy-java-1.1.10.5.jar', '0f3f1857ed33116583f480b4df5c0218836c47bfbc9c6221c0d73f356decf37b'],
]

export async function startZookeeper() {
  const java = await debianProgram('java', ['default-jre-headless'])
  const library = await mavenFiles(`zookeeper-${VERSION}`, FILES)
  const port = await freePort()
  const cwd = folder('zookeeper')
  const settings = {
    tickTime: 2_000,
    dataDir: join(cwd, 'data'),
    clientPortAddress: '127.0.0.1',
    clientPort: port,
    'admin.enableServer': false,
    '4lw.commands.whitelist': 'ruok',
  }
  const file = join(cwd, 'zoo.cfg')
  writeFileSync(
    file,
    Object.entries(settings)
      .map(([name, value]) => `${name}=${value}\n`)
      .join(''),
  )
  const answers = async () => {
    const socket = connect(port, '127.0.0.1')
    try {
      await once(socket, 'connect')
      socket.end('ruok')
      const [answer] = await once(socket, 'data')
      return answer.toString() === 'imok'
    } finally {
      socket.destroy()
    }
  }
  const main = 'org.apache.zookeeper.server.ZooKeeperServerMain'
  return { ...(await start(java, ['-cp', `${library}/*`, main, file], { cwd, answers, signal: 'SIGKILL' })), port, version: VERSION }
}

export async function zookeeper({ port, version }) {
  const require = await npmPackages('node-zookeeper-client@1.1.3')
  const { createClient, CreateMode } = require('node-zookeeper-client')
  const client = createClient(`127.0.0.1:${port}`, { sessionTimeout: 30_000 })
  const connected = once(client, 'connected')
  client.connect()
  await connected
  const create = (path, mode) =>
    new Promise((resolve, reject) => client.create(path, null, mode, error => (error ? reject(new Error(String(error))) : resolve())))
  const remove = path =>
    new Promise((resolve, reject) => client.remove(path, -1, error => (error ? reject(new Error(String(error))) : resolve())))
  const pathOf = name => `/${name.replaceAll('/', '-')}`
  return {
    about: `ZooKeeper ${version}, one server, npm node-zookeeper-client ${versionOf(require, 'node-zookeeper-client')}, its defaults: every write is synced (forceSync)`,
    acquire: name => create(pathOf(name), CreateMode.EPHEMERAL),
    release: name => remove(pathOf(name)),
    async [Symbol.asyncDispose]() {
      client.close()
    },
  }
}
