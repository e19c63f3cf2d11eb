/** Times as Kubernetes writes them: UTC, with whole seconds in metadata and microseconds in a Lease. */

/** The years 1 to 9999, in seconds since 1970. */
export const FIRST_SECOND = -62_135_596_800
export const LAST_SECOND = 253_402_300_799

const DAY = 86_400
/** Days of 400 years, after which the calendar repeats, and the days from March of the year 0 to 1970. */
const ERA = 146_097
const TO_1970 = 719_468

/** The second as RFC 3339 has it, without its zone. Must be from FIRST_SECOND to LAST_SECOND. */
function secondText(seconds: number): string {
  const day = Math.floor(seconds / DAY) + TO_1970
  const era = Math.floor(day / ERA)
  // Years begin in March here, so that a leap day is the last of its year.
  const dayOfEra = day - era * ERA
  const year = Math.floor((dayOfEra - Math.floor(dayOfEra / 1_460) + Math.floor(dayOfEra / 36_524) - Math.floor(dayOfEra / 146_096)) / 365)
  const dayOfYear = dayOfEra - (365 * year + Math.floor(year / 4) - Math.floor(year / 100))
  const month = Math.floor((5 * dayOfYear + 2) / 153)
  const date = dayOfYear - Math.floor((153 * month + 2) / 5) + 1
  const of = (value: number, digits = 2) => String(value).padStart(digits, '0')
  const time = seconds - Math.floor(seconds / DAY) * DAY
  const clock = [Math.floor(time / 3_600), Math.floor(time / 60) % 60, time % 60].map(part => of(part)).join(':')
  const calendarYear = year + era * 400 + (month >= 10 ? 1 : 0)
  return `${of(calendarYear, 4)}-${of(month < 10 ? month + 3 : month - 9)}-${of(date)}T${clock}`
}

export function timeText(seconds: number, nanos: number, type: 'time' | 'microtime'): string {
  const micros = String(Math.floor(nanos / 1_000)).padStart(6, '0')
  return type === 'time' ? `${secondText(seconds)}Z` : `${secondText(seconds)}.${micros}Z`
}

/** The time of a wall clock, as a Lease has it. */
export function microTime(wall: number): string {
  const seconds = Math.floor(wall / 1_000)
  return timeText(seconds, Math.floor(wall - seconds * 1_000) * 1_000_000, 'microtime')
}

/** The time of a wall clock, as metadata has it. */
export function secondTime(wall: number): string {
  return timeText(Math.floor(wall / 1_000), 0, 'time')
}

const RFC3339 = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)$/

/** Nearly all clients send this form, and it is kept. Days up to the 28th are in every month; later ones are looked at in full. */
const NORMAL = {
  time: /^(?!0000)\d{4}-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])T([01]\d|2[0-3]):[0-5]\d:[0-5]\dZ$/,
  microtime: /^(?!0000)\d{4}-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])T([01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{6}Z$/,
}

/** A time of RFC 3339, in UTC and with as many digits as Kubernetes keeps. Undefined: it is not one, or its year is not from 1 to 9999. */
export function normalTime(text: string, type: 'time' | 'microtime'): string | undefined {
  if (NORMAL[type].test(text)) return text
  const [, whole, fraction = '', zone] = RFC3339.exec(text) ?? []
  const seconds = whole === undefined ? Number.NaN : Date.parse(`${whole}${zone}`) / 1_000
  if (!(seconds >= FIRST_SECOND && seconds <= LAST_SECOND)) return undefined
  return timeText(seconds, Number(fraction.padEnd(9, '0')), type)
}
