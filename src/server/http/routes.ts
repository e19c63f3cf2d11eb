/** All routes of the HTTP API. A new group of routes is its file and one line here. */

import { activityRoutes } from './activity-routes.ts'
import { governRoutes } from './govern-routes.ts'
import { leaseRoutes } from './lease-routes.ts'
import { lessorRoutes } from './lessor-routes.ts'
import { openApiRoute } from './openapi.ts'
import { pageRoutes } from './page-routes.ts'
import { poolRoutes } from './pool-routes.ts'
import { resourceRoutes } from './resource-routes.ts'
import type { Route } from './route.ts'
import { serviceRoutes } from './service-routes.ts'
import { systemRoutes } from './system-routes.ts'
import { watchRoutes } from './watch-route.ts'

export const ROUTES: readonly Route[] = [
  ...leaseRoutes,
  ...resourceRoutes,
  ...poolRoutes,
  ...governRoutes,
  ...serviceRoutes,
  ...watchRoutes,
  ...activityRoutes,
  ...lessorRoutes,
  ...systemRoutes,
  openApiRoute(() => ROUTES),
  ...pageRoutes,
]
