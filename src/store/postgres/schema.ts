/**
 * The tables and functions of the log in Postgres. The first process that opens the log creates them.
 *
 * A lock on the log's row gives the order. It lasts for one statement: the engine takes and releases it without waiting for a client, so a
 * stopped client does not block others, and a pooler may run each statement in another session. An append is a function, because a statement
 * sees the database as of its start: only a later statement sees what was committed while the first one waited for the lock, and a function
 * contains several.
 *
 * Each record has the time of its append by the clock of the engine, and the start of the server whose clock that was: times of two servers are never compared
 * where an age must not be an overestimate.
 *
 * The words of these tables and functions (`entry` for a record) are part of existing databases and stay.
 */

/** Raised whenever tables or functions change. A store refuses any other version. */
export const VERSION = 6

/**
 * A function waits this long for a lock. A client that gives up leaves its backend in that wait: without a limit on the server, one transaction that holds the log's
 * row would fill the server with backends. Nothing was done when it is over. No variable has the type of a table: the function would wait for a lock on that table before
 * its first statement. The wait of a commit for a standby has no limit, and must not have one: the
 * transaction that waits holds the log's row, so at most one does for each log.
 */
const MAX_LOCK_WAIT = '3s'
const LOCK_WAIT = `perform set_config('lock_timeout', '${MAX_LOCK_WAIT}', true);`

/**
 * The queue of NOTIFY is shared by all databases of the server. It fills up while any session that listens stays in one transaction, and a commit that notifies fails
 * when it is full. Before that, appends do without: readers poll.
 */
const MAX_QUEUE = 0.5

/**
 * The answer of an append is sent while its transaction still holds the lock. It must fit into the buffers between engine and client even
 * if that client is stopped: otherwise no process could append until the client resumes. (As text each byte takes two.)
 */
const MISSED_BYTES = 32_768
const MISSED_ENTRIES = 256

/** `leas`: the first number of our advisory locks, which distinguishes them from those of other programs. */
const PRESENCE = 0x6c656173

/**
 * The statements of a session of this process alone. Its statements are planned once, maybe while the tables are still small, so no plan may read a whole table.
 * Before version 14 sessions are not ended for being idle.
 */
export const GREETING = `set enable_seqscan = off; select set_config(name, '0', false) from pg_settings where name = 'idle_session_timeout'`

/** The statements with which a session begins to listen to the log: its presence lock, see notifier.ts. An append that waits for a standby may be in its way. */
export function presence(log: number): string {
  return `set lock_timeout = '${MAX_LOCK_WAIT}'; select pg_advisory_lock_shared(${PRESENCE}, ${log}); listen ${channelOf(log)}`
}

/** The statements with which it ceases to listen. */
export function absence(log: number): string {
  return `unlisten ${channelOf(log)}; select pg_advisory_unlock_shared(${PRESENCE}, ${log})`
}

/** The channel of the log; with a name, that of one process, which is told when something became of its leases. */
export function channelOf(log: number, name?: string): string {
  return `leasehold_${log}${name === undefined ? '' : `_${name}`}`
}

/** Returns whether the name needs no quoting. */
export function isPlain(schema: string): boolean {
  return /^[a-z_][a-z0-9_]{0,62}$/.test(schema)
}

/** One transaction with a lock, so that two processes that create at once do so one after the other. */
export function creation(s: string): string {
  const ends = 'l.id, l.head, l.floor, l.floor_nonce'
  const marked = (index: string, o: string) =>
    `other = case when mark = 0 then ${index} else ${o}.other end, reads = case when mark = 2 then ${index} else ${o}.reads end`
  // A renewal that passes is neither, so the values before and after it are the same.
  const passing = (head: string, o: string) => `past < ${head} and ${o}.other <= past and ${o}.reads > since`
  // Asks whether a session that listens holds the presence lock. The first attempt may also fail because of the append before this one, which frees the row of the log
  // a moment before its presence lock. Taking the shared lock waits until it has; then the attempt fails only if a session listens.
  const present = (log: string) =>
    `case when pg_try_advisory_xact_lock(${PRESENCE}, ${log}) then false when pg_advisory_xact_lock_shared(${PRESENCE}, ${log})::text is null then true` +
    ` else not pg_try_advisory_xact_lock(${PRESENCE}, ${log}) end`
  const listened = (log: string, loud: string) => `(${loud} or ${present(log)}) and pg_notification_queue_usage() < ${MAX_QUEUE}`
  return `
select set_config('lock_timeout', '20s', true);
select pg_advisory_xact_lock(hashtextextended('leasehold schema ${s}', 0));

-- "if not exists" would need the right to create schemas even if the schema exists.
do $$ begin
  if to_regnamespace('${s}') is null then create schema ${s}; end if;
end $$;

create table if not exists ${s}.version (version int not null);
insert into ${s}.version select ${VERSION} where not exists (select from ${s}.version);

-- One row for each log: its end, its last record that is no renewal, its last renewal whose writer reads, what was trimmed, the snapshot in force, and whether every append notifies. Updated in place, hence the fill factor.
create table if not exists ${s}.log (
  name text primary key,
  id int not null unique,
  head bigint not null default 0,
  head_nonce bigint not null default 0,
  other bigint not null default 0,
  reads bigint not null default 0,
  floor bigint not null default 0,
  floor_nonce bigint not null default 0,
  snapshot bigint not null default 0,
  loud boolean not null default false
) with (fillfactor = 10, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);

create table if not exists ${s}.entry (
  log int not null,
  idx bigint not null,
  nonce bigint not null,
  bytes bytea not null,
  made_at timestamptz not null default clock_timestamp(),
  server timestamptz not null default pg_postmaster_start_time(),
  primary key (log, idx)
);
alter table ${s}.entry alter column bytes set storage external;

create table if not exists ${s}.snapshot (
  id bigint primary key,
  log int not null,
  idx bigint not null,
  nonce bigint not null,
  written int not null default 0,
  complete boolean not null default false,
  made_at timestamptz not null default clock_timestamp(),
  server timestamptz not null default pg_postmaster_start_time()
);

create table if not exists ${s}.chunk (
  snapshot bigint not null,
  n int not null,
  bytes bytea not null,
  primary key (snapshot, n)
);
alter table ${s}.chunk alter column bytes set storage external;

-- Creates the log if it does not exist, and returns its number, where it ends, and why that record is missing, if it is. Its number is above all that rows of any table have: a sequence would begin anew in a logical copy, or when the tables
-- were truncated.
create or replace function ${s}.open_log(log_name text) returns text language plpgsql as $$
declare l record;
begin
  ${LOCK_WAIT}
  if current_setting('transaction_read_only') = 'on' then
    raise exception 'its transactions are read-only' using errcode = 'read_only_sql_transaction';
  end if;
  loop
    select * into l from ${s}.log where name = log_name;
    if found then return l.id || ' ' || l.head || ' ' || l.head_nonce || ' ' || coalesce(${s}.missing(${ends}, l.head, l.head_nonce), ''); end if;
    begin
      insert into ${s}.log (name, id) select log_name,
        1 + greatest(0, (select max(o.id) from ${s}.log o), (select max(e.log) from ${s}.entry e), (select max(o.log) from ${s}.snapshot o));
    exception when unique_violation then -- another process was quicker
    end;
  end loop;
end $$;

-- From now on every append notifies.
create or replace function ${s}.make_loud(log_id int) returns void language plpgsql as $$
begin
  ${LOCK_WAIT}
  update ${s}.log set loud = true where id = log_id and not loud;
end $$;

-- A commit of its own. Once it is acknowledged, the synchronous standby has all that was visible before.
create or replace function ${s}.barrier(log_name text) returns void language plpgsql as $$
begin
  ${LOCK_WAIT}
  update ${s}.log set loud = loud where name = log_name;
end $$;

-- Null if the log contains the record, else why not. Checks the record's own row and not only the log's row, because rows may have been
-- deleted by hand.
create or replace function ${s}.missing(log_id int, head bigint, floor bigint, floor_nonce bigint, at bigint, at_nonce bigint)
returns text language plpgsql stable as $$
declare found_nonce bigint;
begin
  if at > head then return 'diverged the log ends at ' || head || ', before ' || at; end if;
  if at < floor then return 'trimmed'; end if;
  if at = floor then
    found_nonce := floor_nonce;
  else
    select e.nonce into found_nonce from ${s}.entry e where e.log = log_id and e.idx = at;
    if not found then return 'diverged entry ' || at || ' is gone'; end if;
  end if;
  if found_nonce <> at_nonce then return 'diverged another entry stands at ' || at; end if;
  return null;
end $$;

-- The ms since then, rounded down.
create or replace function ${s}.age(since timestamptz) returns bigint language sql volatile as $$
  select floor(extract(epoch from clock_timestamp() - since) * 1000)::bigint
$$;

-- What follows \`after\`, one record after another, each as nonce, length, age, whether this server wrote it, and bytes; in hexadecimal. Null if there is none.
create or replace function ${s}.packed(log_id int, after bigint, most int, most_bytes int, out bytes text, out hole bigint) language sql stable as $$
  select encode(string_agg(int8send(sized.nonce) || int4send(length(sized.bytes)) || int8send(${s}.age(sized.made_at)) ||
      int2send((sized.server = pg_postmaster_start_time())::int::int2) || sized.bytes, ''::bytea order by sized.idx), 'hex'),
    min(after + sized.n) filter (where sized.idx <> after + sized.n)
  from (
    select e.idx, e.nonce, e.bytes, e.made_at, e.server, row_number() over w as n, sum(length(e.bytes)) over w as total
    from (select * from ${s}.entry one where one.log = log_id and one.idx > after order by one.idx limit most) e
    window w as (order by e.idx)
  ) sized
  where sized.n = 1 or sized.total <= most_bytes
$$;

-- One word, the position, and what was missed. A row of several columns would double the cost of the call. \`mark\`: 0, or 1 for a renewal, 2 for one whose writer reads.
-- With a \`past\` of 0 or more, what was missed is not returned if all of it behind \`past\` are renewals, and the writer of one behind \`since\` reads.
create or replace function ${s}.append(log_name text, after bigint, after_nonce bigint, new_nonce bigint, new_bytes bytea, mark int, past bigint, since bigint)
returns text language plpgsql as $$
declare
  l record;
  log_id int;
  is_loud boolean;
  passes boolean;
  why text;
  missed text;
begin
  ${LOCK_WAIT}
  -- An acknowledged append is durable, whatever the setting of this database.
  if current_setting('synchronous_commit') = 'off' then perform set_config('synchronous_commit', 'local', true); end if;
  -- Usually nothing came in between: then lock, check and move the end in one step. After a wait for the lock the end has moved.
  -- A join instead of "exists": Postgres planned the latter as one query for all logs, which became slower with the number of records.
  update ${s}.log as o set head = after + 1, head_nonce = new_nonce, ${marked('after + 1', 'o')} from ${s}.entry e
    where o.name = log_name and o.head = after and o.head_nonce = after_nonce and e.log = o.id and e.idx = after and e.nonce = after_nonce
    returning o.id, o.loud, ${passing('after', 'o')} into log_id, is_loud, passes;
  if found then
    insert into ${s}.entry (log, idx, nonce, bytes) values (log_id, after + 1, new_nonce, new_bytes);
    if ${listened('log_id', 'is_loud')} then
      perform pg_notify('leasehold_' || log_id, (after + 1) || ' ' || new_nonce);
    end if;
    return case when passes then 'passed ' else 'appended ' end || (after + 1);
  end if;
  select * into l from ${s}.log where name = log_name for no key update;
  if not found then return 'diverged the log is gone'; end if;
  why := coalesce(${s}.missing(${ends}, after, after_nonce), ${s}.missing(${ends}, l.head, l.head_nonce));
  if why is not null then return why; end if;
  passes := ${passing('l.head', 'l')};
  if passes or l.head = after then
    missed := ''; -- at the beginning, or where the log was trimmed to: there is no row to stand on
  elsif l.head - after <= ${MISSED_ENTRIES}
    and (select sum(length(e.bytes)) from ${s}.entry e where e.log = l.id and e.idx > after and e.idx <= l.head) <= ${MISSED_BYTES}
  then
    select p.bytes, case when p.hole is not null then 'diverged entry ' || p.hole || ' is gone' end into missed, why
      from ${s}.packed(l.id, after, ${MISSED_ENTRIES}, ${MISSED_BYTES}) p;
    if why is not null then return why; end if;
  end if;
  insert into ${s}.entry (log, idx, nonce, bytes) values (l.id, l.head + 1, new_nonce, new_bytes);
  update ${s}.log as o set head = l.head + 1, head_nonce = new_nonce, ${marked('l.head + 1', 'o')} where name = log_name;
  if ${listened('l.id', 'l.loud')} then
    perform pg_notify('leasehold_' || l.id, (l.head + 1) || ' ' || new_nonce);
  end if;
  if passes then return 'passed ' || (l.head + 1); end if;
  if missed is null then return 'behind ' || (l.head + 1); end if;
  return 'appended ' || (l.head + 1) || ' ' || missed;
end $$;

-- One word, the end of the log, and what follows \`after\`, as much as one answer carries.
create or replace function ${s}.read(log_name text, after bigint, after_nonce bigint, most int, most_bytes int)
returns text language plpgsql stable as $$
declare
  l record;
  why text;
  following text;
begin
  ${LOCK_WAIT}
  -- The log on a standby may be out of date.
  if pg_is_in_recovery() then raise exception 'this is a standby' using errcode = 'read_only_sql_transaction'; end if;
  select * into l from ${s}.log where name = log_name;
  if not found then return 'diverged the log is gone'; end if;
  why := ${s}.missing(${ends}, after, after_nonce);
  if why is not null then return why; end if;
  if after = l.head then return 'entries ' || l.head; end if;
  select p.bytes, case when p.bytes is null or p.hole is not null then 'diverged entry ' || coalesce(p.hole, after + 1) || ' is gone' end
    into following, why from ${s}.packed(l.id, after, most, most_bytes) p;
  return coalesce(why, 'entries ' || l.head || ' ' || following);
end $$;

-- The snapshot in force: its number, its position, the number of its chunks, and its age. Null if there is none.
create or replace function ${s}.newest(log_name text) returns text language plpgsql stable as $$
begin
  ${LOCK_WAIT}
  return (select o.id || ' ' || o.idx || ' ' || o.nonce || ' ' || o.written || ' ' ||
      case when o.server = pg_postmaster_start_time() then ${s}.age(o.made_at) else 0 end
    from ${s}.log l join ${s}.snapshot o on o.id = l.snapshot where l.name = log_name);
end $$;

-- A chunk of a snapshot, in hexadecimal. Null if it was deleted.
create or replace function ${s}.chunk_bytes(made bigint, number int) returns text language plpgsql stable as $$
begin
  ${LOCK_WAIT}
  return (select encode(c.bytes, 'hex') from ${s}.chunk c where c.snapshot = made and c.n = number);
end $$;

-- Begins to write a snapshot and returns its id, or why not. If another one is being written it returns its progress; \`stale\` is one to ignore.
create or replace function ${s}.begin_snapshot(log_name text, at bigint, at_nonce bigint, stale bigint)
returns table (kind text, snapshot bigint, written int) language plpgsql as $$
declare
  l record;
  other record;
begin
  ${LOCK_WAIT}
  select * into l from ${s}.log where name = log_name for no key update;
  if not found then return query select 'diverged the log is gone', 0::bigint, 0; return; end if;
  if exists (select from ${s}.snapshot o where o.id = l.snapshot and o.idx >= at) then return query select 'older', 0::bigint, 0; return; end if;
  kind := ${s}.missing(${ends}, at, at_nonce);
  if kind is not null then return query select kind, 0::bigint, 0; return; end if;
  delete from ${s}.snapshot o where o.id = stale and not o.complete;
  select * into other from ${s}.snapshot o where o.log = l.id and not o.complete order by o.id limit 1;
  if found then return query select case when other.idx >= at then 'older' else 'busy' end, other.id, other.written; return; end if;
  loop
    begin
      return query insert into ${s}.snapshot as made (id, log, idx, nonce)
        select 1 + greatest(0, (select max(o.id) from ${s}.snapshot o), (select max(c.snapshot) from ${s}.chunk c)), l.id, at, at_nonce
        returning 'begun', made.id, 0;
      return;
    exception when unique_violation then -- a snapshot of another log has the number
    end;
  end loop;
end $$;

-- Writes one chunk. False if the snapshot was deleted.
create or replace function ${s}.put_chunk(made bigint, number int, piece bytea) returns boolean language plpgsql as $$
begin
  ${LOCK_WAIT}
  update ${s}.snapshot o set written = number + 1 where o.id = made and not o.complete;
  if not found then return false; end if;
  insert into ${s}.chunk as c (snapshot, n, bytes) values (made, number, piece) on conflict (snapshot, n) do update set bytes = excluded.bytes;
  return true;
end $$;

-- Deletes a snapshot that was not completed.
create or replace function ${s}.drop_snapshot(made bigint) returns void language plpgsql as $$
begin
  ${LOCK_WAIT}
  delete from ${s}.snapshot o where o.id = made and not o.complete;
end $$;

-- Puts the snapshot in force and trims up to the previous one. The rows are deleted later, a few at a time, while others append.
create or replace function ${s}.keep_snapshot(log_name text, made bigint, chunks int) returns text language plpgsql as $$
declare
  l record;
  fresh record;
  last record;
  why text;
begin
  ${LOCK_WAIT}
  if current_setting('synchronous_commit') = 'off' then perform set_config('synchronous_commit', 'local', true); end if;
  select * into l from ${s}.log where name = log_name for no key update;
  if not found then return 'diverged the log is gone'; end if;
  select * into last from ${s}.snapshot o where o.id = l.snapshot;
  select * into fresh from ${s}.snapshot o where o.id = made;
  if not found then return 'taken'; end if;
  if last.idx >= fresh.idx then return 'older'; end if;
  why := ${s}.missing(${ends}, fresh.idx, fresh.nonce);
  if why is not null then return why; end if;
  if (select count(*) from ${s}.chunk c where c.snapshot = made) <> chunks then return 'taken'; end if;
  update ${s}.snapshot o set complete = true where o.id = made;
  update ${s}.log set snapshot = made, floor = coalesce(last.idx, l.floor), floor_nonce = coalesce(last.nonce, l.floor_nonce) where name = log_name;
  return 'kept';
end $$;

-- Deletes at most this many rows that no reader can ask for any more, and returns how many it deleted.
create or replace function ${s}.tidy(log_name text, most int) returns bigint language plpgsql as $$
declare
  l record;
  gone bigint;
  more bigint;
begin
  ${LOCK_WAIT}
  select * into l from ${s}.log where name = log_name;
  if not found then return 0; end if;
  delete from ${s}.entry e where e.log = l.id and e.idx in (
    select one.idx from ${s}.entry one where one.log = l.id and one.idx <= l.floor order by one.idx limit most for update skip locked);
  get diagnostics gone = row_count;
  -- Keep the last two complete ones: the older one may have readers.
  delete from ${s}.snapshot o where o.log = l.id and o.complete and o.id < l.snapshot and o.idx < l.floor;
  delete from ${s}.chunk c where (c.snapshot, c.n) in (
    select one.snapshot, one.n from ${s}.chunk one
    where not exists (select from ${s}.snapshot o where o.id = one.snapshot) limit most / 16 + 1 for update skip locked);
  get diagnostics more = row_count;
  return gone + more;
end $$;
`
}
