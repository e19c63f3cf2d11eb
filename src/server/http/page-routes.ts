/** The dashboard at `/`: static files with a strict content security policy. Nothing is loaded from elsewhere, and only one file may run as a script. */
import { readFileSync } from 'node:fs'
import { type HttpResponse, type Route, type RouteContext, route } from './route.ts'
import { StaticResponse } from './static-response.ts'

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

function file(url: URL, type: string): (context: RouteContext) => HttpResponse {
  const response = new StaticResponse(() => readFileSync(url))
  return ({ request }) => response.for(request, { type, headers: HEADERS })
}

export const pageRoutes: readonly Route[] = [
  route({
    method: 'GET',
    path: '/',
    summary: 'The dashboard.',
    type: 'text/html',
    open: true,
    handle: file(new URL('../../dashboard/index.html', import.meta.url), 'text/html; charset=utf-8'),
  }),
  route({
    method: 'GET',
    path: '/page.js',
    summary: 'The script of the dashboard.',
    type: 'text/javascript',
    open: true,
    handle: file(new URL('../../dashboard/page.js', import.meta.url), 'text/javascript; charset=utf-8'),
  }),
  route({
    method: 'GET',
    path: '/page.css',
    summary: 'The style sheet of the dashboard.',
    type: 'text/css',
    open: true,
    handle: file(new URL('../../dashboard/page.css', import.meta.url), 'text/css; charset=utf-8'),
  }),
  route({
    method: 'GET',
    path: '/page.svg',
    summary: 'The icon of the dashboard.',
    type: 'image/svg+xml',
    open: true,
    handle: file(new URL('../../dashboard/page.svg', import.meta.url), 'image/svg+xml'),
  }),
]
