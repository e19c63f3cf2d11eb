/**
 * The scripts that run inside Redis, each one atomic step. The log is a stream. The id of a record is its index (`17-0`), its fields are `n`
 * its nonce, `p` the nonce of the record before it, `b` its bytes, `t` the time of its append in microseconds by the clock of Redis, `s` the server (its run id)
 * whose clock that was, `o` the index of the last record that is no renewal, and `r` that of the last renewal whose writer reads. So the result of a blocking read can be verified without another
 * request, and Redis itself refuses an index that was used before, even if that record has been deleted.
 *
 * Trimming keeps the record it trims to, so that the position of a reader there can still be verified.
 */
import { createHash } from 'node:crypto'

/** One answer carries at most this much. A larger record travels alone. */
const MAX_RECORDS = 1_000
const MAX_BYTES = 1_048_576
/** Rows that a script reads at a time: a few, since they may be large. */
const ROWS = 16

export interface Script {
  readonly text: string
  readonly sha: string
}

/** `first`: code that needs none of the functions, which take longer to define than most calls take to run. */
function script(body: string, first = ''): Script {
  const text = `${first}${prelude}${body}`
  return { text, sha: createHash('sha1').update(text).digest('hex') }
}

/** KEYS: the log, the pointer to the snapshot. The last argument of each script is the run id of this server. `absent` returns why the log does not contain a position, or nil. */
const prelude = `
local log, pointer, server = KEYS[1], KEYS[2], ARGV[#ARGV]
local head = redis.call('XREVRANGE', log, '+', '-', 'COUNT', 1)[1]
local function id(index) return string.format('%.0f-0', index) end
local function number(row) return tonumber(string.match(row[1], '^%d+')) end
local function ours(row)
  local f = row[2]
  return string.match(row[1], '^%d+%-0$') and #f == 14 and f[1] == 'n' and f[3] == 'p' and f[5] == 'b' and f[7] == 't' and f[9] == 's' and f[11] == 'o' and f[13] == 'r'
end
local function foreign(row)
  local f = row[2]
  return {(#f == 6 or #f == 10) and f[1] == 'n' and f[3] == 'p' and f[5] == 'b' and 'former' or 'foreign'}
end
local function now()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end
-- The ms since then, rounded down.
local function age(time) return math.floor((now() - tonumber(time)) / 1000) end
local function absent(index, nonce)
  if not head then
    if redis.call('EXISTS', log) == 1 then return {'emptied'} end
    if index == 0 and nonce == '0' and redis.call('EXISTS', pointer) == 0 then return nil end
    return {'gone'}
  end
  if not ours(head) then return foreign(head) end
  local last = number(head)
  if index > last then return {'ends', last} end
  if index == last then
    if head[2][2] ~= nonce then return {'another'} end
    return nil
  end
  local first = number(redis.call('XRANGE', log, '-', '+', 'COUNT', 1)[1])
  if index == 0 and nonce ~= '0' then return {'another'} end
  if index < first and not (index == 0 and first == 1) then
    -- Records that Leasehold trims are in the snapshot. Others were trimmed by another program.
    local at = tonumber(redis.call('HGET', pointer, 'index') or 0)
    if at < first then return {'missing', first - 1} end
    return {'trimmed'}
  end
  if index == 0 then return nil end
  local row = redis.call('XRANGE', log, id(index), id(index))[1]
  if not row then return {'missing', index} end
  if row[2][2] ~= nonce then return {'another'} end
  return nil
end
-- What follows, as nonce, nonce before, bytes, age, whether this server wrote it; how far it goes; how large it is. Or nothing, and the entry that is missing.
local function following(from, last)
  local rows, bytes, at = {}, 0, from
  while at < last do
    local more = redis.call('XRANGE', log, id(at + 1), id(last), 'COUNT', ${ROWS})
    if #more == 0 then return nil, at + 1 end
    for _, row in ipairs(more) do
      if row[1] ~= id(at + 1) or not ours(row) then return nil, at + 1 end
      local f = row[2]
      if #rows > 0 and (bytes + #f[6] > ${MAX_BYTES} or at - from == ${MAX_RECORDS}) then return rows, at, bytes end
      bytes = bytes + #f[6]
      at = at + 1
      rows[#rows + 1] = f[2]
      rows[#rows + 1] = f[4]
      rows[#rows + 1] = f[6]
      rows[#rows + 1] = tostring(age(f[8]))
      rows[#rows + 1] = f[10] == server and '1' or '0'
    end
  end
  return rows, at, bytes
end
`

/** ARGV of an append: what the new record is marked with, and what it may pass. */
const marks = `
local function marked(index, o, r)
  index = string.format('%.0f', index)
  if ARGV[6] == '0' then o = index elseif ARGV[6] == '2' then r = index end
  return o, r
end
local function passes(last, o, r)
  local past = tonumber(ARGV[7])
  return past < last and tonumber(o) <= past and tonumber(r) > tonumber(ARGV[8])
end
`

/** The fast path: nearly always the caller is at the end of the log. */
const nothingBetween = `${marks}
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
if last and last[1] == ARGV[1] .. '-0' and last[2][2] == ARGV[2] and last[2][11] == 'o' then
  local time = redis.call('TIME')
  local micros = string.format('%.0f', time[1] * 1000000 + time[2])
  local o, r = last[2][12], last[2][14]
  local word = passes(tonumber(ARGV[1]), o, r) and 'passed' or 'appended'
  o, r = marked(tonumber(ARGV[1]) + 1, o, r)
  local added = redis.pcall('XADD', KEYS[1], ARGV[5], 'n', ARGV[3], 'p', ARGV[2], 'b', ARGV[4], 't', micros, 's', ARGV[#ARGV], 'o', o, 'r', r)
  if type(added) ~= 'table' then return {word, tonumber(ARGV[1]) + 1, {}} end
  if not string.find(added.err, 'equal or smaller', 1, true) then return added end
end
`

/**
 * ARGV: index and nonce of the caller's position, the new record's nonce, its bytes, its id if nothing came in between, its mark (0, or 1 for a renewal, 2 for one whose
 * writer reads), and what it may pass: the index that its writer has read, or -1, and the index after which a reader must have written. The only write
 * comes last: any error means that nothing was done.
 */
export const APPEND = script(
  `
local after = tonumber(ARGV[1])
local elsewhere = absent(after, ARGV[2])
if elsewhere then return elsewhere end
local last, nonce, rows, complete, o, r = 0, '0', {}, true, '0', '0'
if head then last, nonce, o, r = number(head), head[2][2], head[2][12], head[2][14] end
local passed = passes(last, o, r)
if passed then complete = true
elseif last - after > ${MAX_RECORDS} then complete = false
elseif last > after then
  local at, bytes
  rows, at, bytes = following(after, last)
  if not rows then return {'missing', at} end
  complete = at == last and bytes <= ${MAX_BYTES}
end
o, r = marked(last + 1, o, r)
local added = redis.pcall('XADD', log, id(last + 1), 'n', ARGV[3], 'p', nonce, 'b', ARGV[4], 't', string.format('%.0f', now()), 's', server, 'o', o, 'r', r)
if type(added) == 'table' and added.err then
  if string.find(added.err, 'equal or smaller', 1, true) then return {'missing', last + 1} end
  return added
end
if passed then return {'passed', last + 1, {}} end
if complete then return {'appended', last + 1, rows} end
return {'behind', last + 1}
`,
  nothingBetween,
)

/**
 * ARGV: index and nonce of the caller's position. XTRIM removes nothing here, but a replica of Redis refuses it like any write: a former
 * primary must not answer with an old end of the log.
 */
export const READ = script(`
local primary = redis.pcall('XTRIM', log, 'MINID', '0-0')
if type(primary) == 'table' and primary.err then return primary end
local after = tonumber(ARGV[1])
local elsewhere = absent(after, ARGV[2])
if elsewhere then return elsewhere end
if not head then return {'entries', {}} end
local rows, at = following(after, number(head))
if not rows then return {'missing', at} end
return {'entries', rows}
`)

/** Returns the end of the log and the snapshot in force: id, index, nonce, chunks, age, whether this server wrote it. Refuses a log whose end was deleted. */
export const LOOK = script(`
local kept = redis.call('HMGET', pointer, 'id', 'index', 'nonce', 'chunks', 'time', 'server')
if not kept[1] then kept = {} elseif not kept[5] then return {'former'} else kept[5], kept[6] = tostring(age(kept[5])), kept[6] == server and '1' or '0' end
if not head then
  local elsewhere = absent(0, '0')
  if elsewhere then return elsewhere end
  return {'there', 0, '0', 0, kept}
end
if not ours(head) then return foreign(head) end
local info = redis.call('XINFO', 'STREAM', log)
for i = 1, #info, 2 do
  if info[i] == 'last-generated-id' and info[i + 1] ~= head[1] then return {'missing', number({info[i + 1]})} end
end
if kept[1] then
  local elsewhere = absent(tonumber(kept[2]), kept[3])
  if elsewhere then return elsewhere end
end
return {'there', number(head), head[2][2], number(redis.call('XRANGE', log, '-', '+', 'COUNT', 1)[1]), kept}
`)

/**
 * KEYS: also the chunks. ARGV: index and nonce of the snapshot, its id, its number of chunks; without the last two the script only checks
 * whether the snapshot would be kept. Returns the id of the snapshot that no reader can be using any more.
 */
export const KEEP = script(`
local index = tonumber(ARGV[1])
local kept = redis.call('HMGET', pointer, 'id', 'index', 'last', 'stale')
if kept[1] and index <= tonumber(kept[2]) then return {'older'} end
local elsewhere = absent(index, ARGV[2])
if elsewhere then return elsewhere end
if #ARGV == 3 then return {'newer', kept[4] or ''} end
if redis.call('HLEN', KEYS[3]) ~= tonumber(ARGV[4]) then return {'taken'} end
local set = redis.pcall('HSET', pointer, 'id', ARGV[3], 'index', ARGV[1], 'nonce', ARGV[2], 'chunks', ARGV[4],
  'last', kept[1] or '', 'stale', kept[3] or '', 'time', string.format('%.0f', now()), 'server', server)
if type(set) == 'table' and set.err then return set end
redis.call('PERSIST', KEYS[3])
if kept[1] then redis.call('XTRIM', log, 'MINID', id(tonumber(kept[2]))) end
return {'kept', kept[3] or ''}
`)
