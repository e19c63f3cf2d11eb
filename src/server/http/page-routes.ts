/** The page at `/`: a few files of our own, nothing from anywhere else, no script but the one file. */
import { readFileSync } from 'node:fs'
import { type HttpAnswer, type Route, type RouteCall, route } from './route.ts'
import { Shared } from './shared-answer.ts'

const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "connect-src 'self'",
  "img-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ')

const HEADERS = {
  'Content-Security-Policy': POLICY,
  'X-Frame-Options': 'DENY',
  'Referrer-Policy': 'no-referrer',
  'Cross-Origin-Opener-Policy': 'same-origin',
}

function file(url: URL, type: string): (call: RouteCall) => HttpAnswer {
  const shared = new Shared(() => readFileSync(url))
  return ({ ask }) => shared.answer(ask, { type, headers: HEADERS })
}

export const pageRoutes: readonly Route[] = [
  route({
    method: 'GET',
    path: '/',
    summary: 'A small live page.',
    type: 'text/html',
    open: true,
    handle: file(new URL('../../dashboard/index.html', import.meta.url), 'text/html; charset=utf-8'),
  }),
  route({
    method: 'GET',
    path: '/page.js',
    summary: 'Its script.',
    type: 'text/javascript',
    open: true,
    handle: file(new URL('../../dashboard/page.js', import.meta.url), 'text/javascript; charset=utf-8'),
  }),
  route({
    method: 'GET',
    path: '/page.css',
    summary: 'Its looks.',
    type: 'text/css',
    open: true,
    handle: file(new URL('../../dashboard/page.css', import.meta.url), 'text/css; charset=utf-8'),
  }),
  route({
    method: 'GET',
    path: '/page.svg',
    summary: 'Its sign.',
    type: 'image/svg+xml',
    open: true,
    handle: file(new URL('../../dashboard/page.svg', import.meta.url), 'image/svg+xml'),
  }),
]
