/**
 * The dashboard at `/`: static files with a strict content security policy. Nothing is loaded from elsewhere, and only one file may run as a script.
 * `npm run build` makes the files of src/dashboard.
 */
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

/** Where the built files are: beside this file's folder, or, when the sources run without a build of their own, in the build of the package. */
const BUILT = import.meta.url.endsWith('.ts') ? '../../../dist/dashboard/' : '../../dashboard/'

function file(name: string, type: string): (context: RouteContext) => HttpResponse {
  const response = new StaticResponse(() => readFileSync(new URL(BUILT + name, import.meta.url)))
  return ({ request }) => response.for(request, { type, headers: HEADERS })
}

export const pageRoutes: readonly Route[] = [
  route({
    method: 'GET',
    path: '/',
    summary: 'The dashboard.',
    type: 'text/html',
    open: true,
    handle: file('index.html', 'text/html; charset=utf-8'),
  }),
  route({
    method: 'GET',
    path: '/page.js',
    summary: 'The script of the dashboard.',
    type: 'text/javascript',
    open: true,
    handle: file('page.js', 'text/javascript; charset=utf-8'),
  }),
  route({
    method: 'GET',
    path: '/page.css',
    summary: 'The style sheet of the dashboard.',
    type: 'text/css',
    open: true,
    handle: file('page.css', 'text/css; charset=utf-8'),
  }),
  route({
    method: 'GET',
    path: '/page.svg',
    summary: 'The icon of the dashboard.',
    type: 'image/svg+xml',
    open: true,
    handle: file('page.svg', 'image/svg+xml'),
  }),
]
