// The first page of the site. It is put together from README.md and docs/numbers.md, so that nothing is written twice.

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { root } from '../build.mjs'

/** Sections of README.md, in the order of the page. The numbers come before the comparison. */
const BEFORE = ['Why', 'Quick start']
const AFTER = ['Compared with others', 'What is promised']
/** Peers of docs/numbers.md, by the start of their rows, and the names on this page. */
const PEERS = [
  ['Redis, SET NX PX and DEL', 'Redis, `SET NX PX`'],
  ['Valkey, SET NX PX and DEL', 'Valkey, `SET NX PX`'],
  ['Postgres, lock in a row', 'Postgres, a row'],
  ['ZooKeeper', 'ZooKeeper'],
  ['Consul', 'Consul'],
  ['etcd, three members, lock()', 'etcd, three members, `lock()`'],
  ['etcd, one member, lock()', 'etcd, one member, `lock()`'],
]

/** The text of the page as if it were README.md: its links are relative to the root of the repository. */
export function landingPage() {
  const readme = readFileSync(join(root, 'README.md'), 'utf8')
  const { description } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
  const [, title, first, second] = /^# ([^\n]*)\n\n(.*?\.) (.*?\.)(?: |\n)/s.exec(readme)
  const picture = /^!\[.*\]\(docs\/images\/dashboard-now\.png\)$/m.exec(readme)[0]
  return [
    hero({ title, text: first, tagline: oneLine(second), description }),
    ...BEFORE.map(heading => sectionOf(readme, heading).replace(picture, '').trim()),
    picture,
    numbers(),
    ...AFTER.map(heading => sectionOf(readme, heading)),
    '',
  ].join('\n\n')
}

function hero({ title, text, tagline, description }) {
  return `---
layout: home
title: ${title}
titleTemplate: ${JSON.stringify(description)}
hero:
  name: ${title}
  text: ${JSON.stringify(upperFirst(text.replace(/^Leasehold grants leases: /, '')))}
  tagline: ${JSON.stringify(tagline)}
  actions:
    - { theme: brand, text: Quick start, link: /quick-start }
    - { theme: alt, text: What happens when…, link: /playground }
    - { theme: alt, text: What is promised, link: /guarantees }
    - { theme: alt, text: All pages, link: /contents }
---`
}

function upperFirst(text) {
  return text[0].toUpperCase() + text.slice(1)
}

function oneLine(text) {
  return text.replace(/\s*\n\s*/g, ' ')
}

/** A section of a page, with its heading. */
export function sectionOf(text, heading) {
  const found = new RegExp(`^## ${heading}\\n[\\s\\S]*?(?=^## |$(?![\\s\\S]))`, 'm').exec(text)
  if (found === null) throw new Error(`there is no section "${heading}"`)
  return found[0].trim()
}

function numbers() {
  const text = readFileSync(join(root, 'docs/numbers.md'), 'utf8')
  const rows = text
    .split('\n')
    .filter(line => line.startsWith('| '))
    .map(line => line.split('|').map(cell => cell.replaceAll('\u00a0', ' ').trim()))
  const ratio = (part, peer) => {
    let current = ''
    for (const [, what, , , ratio] of rows) {
      current = /^`([\w-]+)/.exec(what)?.[1] ?? current
      if (current === part && what === `compared with ${peer}`) return ratio
    }
    return ''
  }
  const peers = PEERS.map(([peer, shown]) => [shown, ratio('in-flight', peer), ratio('one-at-a-time', peer)])
  const measured = peers.filter(([, rate, time]) => rate !== '' || time !== '')
  return `## Numbers

Acquire and release through the client that programs use, each answer synced to disk on both sides, measured in turns on one machine of two cores.

| compared with | rate with 256 in flight, ours ÷ theirs | time one at a time, ours ÷ theirs |
|---|---|---|
${measured.map(cells => `| ${cells.join(' | ')} |`).join('\n')}

More is better for the rate, less for the time. [All numbers](docs/numbers.md), how they are measured, and what limits them.`
}
