/* An owner that keeps renewals in memory, and is restarted again and again.

   What is modelled. One lease with one holder, and the one server that owns the store. The holder's renewals arrive after any time, and
   answers may be lost. The owner keeps a wheel (ticks since the last renewal), appends records that become durable in their order after
   any time (renewals it must log, marks, a due), and may crash at any moment: what was not durable is gone, and so is the wheel. The
   next owner starts its wheel from what the log says has aged. At some time the holder dies for good. Rules 5 and 6 of the time law:

     - a renewal kept in memory moves the wheel, never the epoch;
     - the first renewal after a restart, and the first after a mark, are acknowledged when they are durable in the log;
     - "after a mark" begins when the mark is proposed, and ends when a renewal behind it is durable: until then every renewal is logged;
     - from the proposal of a due until the outcome of that very due, renewals are refused (or logged behind it: -DDUE_LOGS);
     - `aged` names a timer and its epoch; the mark for all leases not renewed since a restart names the place of the log where the owner
       took over, and passes over every lease whose epoch began behind it.

   What is promised. The lease never lapses while its holder believes: the next waiter is granted it in the same revision, so there would
   be two (S1, S4). A dead holder's lease is gone after 2 TTL + 1 ticks of running owners, whatever the crashes (S5), if every life
   of an owner is long enough for one tick and its mark to become durable. A crash loop faster than that is outside the promise: it learns nothing.

   What is not in it. Several leases (they do not meet: the mark for all is one mark on each), the race of two replicas (lease.pml),
   revoke (freeze.pml), how the store makes sure that there is one owner: -DPREDECESSOR shows why an epoch checked by appends is not
   enough for an owner that acknowledges without appending.

   Searches, read and run by `node spec/check.mjs owner`; the numbers are of states, in full search.

   holds                  62,392     no lease lapses under a believer, and no crash loop keeps a dead holder's lease
   holds    -DTTL=4       634,676    the same on a finer clock
   holds    -DDUE_LOGS     94,256    the same when renewals are logged while a due is under way, instead of refused
   breaks   -DDUE_ACKS              a renewal acknowledged while the due for its lease is under way
   breaks   -DSETTLED_BY_OLDER      a renewal kept in memory again because an older due was settled, while a newer one is under way
   breaks   -DRESTART_IN_MEMORY     the first renewal after a restart kept in memory only
   breaks   -DMARK_IN_MEMORY        the first renewal after a mark kept in memory only
   breaks   -DMARK_SEEN_LATE        a mark that counts from when it is durable: a renewal meanwhile stays in memory
   breaks   -DACK_BEFORE_DURABLE    a renewal that must be logged, acknowledged before it is
   breaks   -DSECOND_IN_MEMORY      a second renewal kept in memory while the first is on its way to the log
   breaks   -DROUNDED_UP            a mark that says one tick too much
   breaks   -DFROM_EPOCH            a mark counted from the epoch's start, past the renewals in memory
   breaks   -DMARKS_ADD             a mark added to the one before, where both count from the same start
   breaks   -DTOGETHER_TWICE        a mark of one lease and a later mark for all that report the same time, added
   breaks   -DMARK_ANY_EPOCH        a mark that ignores a renewal before it in the log
   breaks   -DMARK_HITS_ALL         a mark for all that also ages leases renewed since the restart
   breaks   -DDUE_ANY_EPOCH         a due that ignores a renewal before it in the log
   breaks   -DENTRY_AGE             an owner that starts from the known age of the record, past the renewals in memory
   breaks   -DPREDECESSOR           a disowned owner that still acknowledges from memory
   breaks   -DNO_MARKS              no marks at all: immortal through a crash loop
   breaks   -DFORGETFUL             a restarted owner that gives every lease a whole ttl again
   breaks   -DMARK_RESTARTS         a mark that says only how long this owner has lived
   reaches  -DREACH_LAPSE           the holder's belief runs out and the lease lapses
   reaches  -DREACH_REFUSED         a renewal is refused because a due is under way
   reaches  -DREACH_VOID            a due is void because a renewal stands before it in the log
   reaches  -DREACH_MEMORY          a believer known only to a memory that was lost outlives the restart
   reaches  -DREACH_CONTINUED       a restarted owner lapses a lease sooner than a whole ttl after its start
   reaches  -DREACH_LOOP            a dead holder's lease lapses later than a ttl, because of crashes */

#ifndef TTL
#define TTL 2
#endif

/* records on their way to the log */
#define RENEW 1
#define DUE 2
#define MARK 3              /* this timer, this epoch, this many ticks */
#define MARK_ALL 4          /* all that were not renewed since I took over */

#define QUEUE 3
typedef Record { byte kind; byte epoch; byte ticks }
Record queue[QUEUE];
byte queued;

/* what is durable */
byte epoch;                 /* modulo 4: no more than three records are ever on their way */
byte aged;                  /* ticks the log knows to have passed since the epoch's last renewal */
bool renewed = true;        /* the epoch began after the present owner took over */

/* the owner */
bool up = true;
byte wheel;                 /* ticks since the last renewal, as far as it knows */
byte life;                  /* ticks since it took over ... */
byte before;                /* ... and what had aged by then */
bool logged = true;         /* a renewal has been logged since it took over */
bool marked;                /* a mark was proposed since the last logged renewal */

/* the holder */
#define SENT 1
#define TAKEN 2             /* the owner has appended it and owes the answer */
#define ACKED 3             /* the answer is on its way */
byte request, sent, age;    /* age: ticks since the last acknowledged renewal was sent */
#define BELIEVES (!dead && age < TTL)

bool dead;                  /* the holder will never renew again */
byte idle;                  /* ticks of running owners since */
bool useful;                /* since then this owner has made a tick's mark durable */
bool unmarked;              /* the last tick has no durable mark yet */
#define BOUND (2 * TTL + 1)

#if defined(FROM_EPOCH) || defined(ENTRY_AGE)
byte entry;                 /* ticks since the record that began the epoch became durable */
#endif
#if defined(REACH_MEMORY)
bool memory;                /* the last acknowledged renewal was kept in memory */
#endif
#ifdef PREDECESSOR
bool old;                   /* the owner before still runs */
#endif
#ifdef SETTLED_BY_OLDER
bool busy;                  /* set by the proposal of a due, cleared by a new epoch and by any due's outcome */
#endif
#ifdef TOGETHER_TWICE
byte own, all;              /* what marks of this lease said, beyond what marks for all had said when they came; and the latter */
#endif

byte i; bool due, renewing; /* scratch, cleared after each step */

inline tick(clock) { if :: clock < TTL -> clock++ :: else fi }
inline push(what, when, much) { queue[queued].kind = what; queue[queued].epoch = when; queue[queued].ticks = much; queued++ }
inline look() {
  i = 0;
  do
  :: i < queued -> due = due || queue[i].kind == DUE; renewing = renewing || queue[i].kind == RENEW; i++
  :: else -> break
  od;
  i = 0
}
inline forget() { due = false; renewing = false }

#ifdef RESTART_IN_MEMORY
#define UNSURE marked
#elif defined(MARK_IN_MEMORY)
#define UNSURE (!logged)
#elif defined(DUE_LOGS)
#define UNSURE (!logged || marked || due)
#else
#define UNSURE (!logged || marked)
#endif
#if defined(DUE_ACKS) || defined(DUE_LOGS)
#define REFUSING false
#elif defined(SETTLED_BY_OLDER)
#define REFUSING busy
#else
#define REFUSING due
#endif
#ifdef SETTLED_BY_OLDER
#define MAY_PROPOSE (!busy)
#else
#define MAY_PROPOSE (!due)
#endif
#ifdef ROUNDED_UP
#define OBSERVED (wheel + 1)
#elif defined(FROM_EPOCH)
#define OBSERVED entry
#elif defined(MARK_RESTARTS)
#define OBSERVED ((wheel < life) * wheel + (wheel >= life) * life)
#else
#define OBSERVED wheel
#endif
#if defined(MARK_RESTARTS) || defined(TOGETHER_TWICE)
#define TOGETHER life
#else
#define TOGETHER (before + life)
#endif

inline arrive() {
  look();
  if
#ifdef PREDECESSOR
  :: old -> old = false; request = ACKED
#endif
  :: REFUSING ->
#ifdef REACH_REFUSED
     assert(false);
#endif
     request = 0; sent = 0
  :: !REFUSING && UNSURE ->
     if
     :: queued < QUEUE ->
        push(RENEW, 0, 0);
#ifdef SECOND_IN_MEMORY
        logged = true; marked = false;
#endif
#ifdef ACK_BEFORE_DURABLE
        request = ACKED
#else
        request = TAKEN
#endif
     :: else -> request = 0; sent = 0
     fi
  :: !REFUSING && !UNSURE ->
     wheel = 0; request = ACKED;
#ifdef REACH_MEMORY
     memory = true
#endif
  fi;
  forget()
}

inline age_to(much) {
  useful = useful || unmarked; unmarked = false;
#ifdef MARKS_ADD
  aged = aged + much;
#elif defined(TOGETHER_TWICE)
  if
  :: queue[0].kind == MARK && much > own + all -> own = much - all
  :: queue[0].kind == MARK_ALL && much > all -> all = much
  :: else
  fi;
  aged = own + all;
#else
  if :: much > aged -> aged = much :: else fi;
#endif
  if :: aged > TTL -> aged = TTL :: else fi
}

inline durable() {
  if
  :: queue[0].kind == RENEW ->
     epoch = (epoch + 1) % 4; aged = 0; renewed = true;
#ifdef SETTLED_BY_OLDER
     busy = false;
#endif
#ifdef TOGETHER_TWICE
     own = 0; all = 0;
#endif
     wheel = 0; logged = true; marked = false;
#if defined(FROM_EPOCH) || defined(ENTRY_AGE)
     entry = 0;
#endif
     i = 1;
     do
     :: i < queued && queue[i].kind != RENEW -> i++
     :: else -> break
     od;
     if
     :: request == TAKEN && i == queued ->
        request = ACKED;
#ifdef REACH_MEMORY
        memory = false
#endif
     :: else
     fi
  :: queue[0].kind == DUE ->
#ifdef SETTLED_BY_OLDER
     busy = false;
#endif
#ifdef DUE_ANY_EPOCH
     alive = false;
#else
     alive = queue[0].epoch != epoch;
#endif
#ifdef REACH_VOID
     assert(!alive);
#endif
     assert(alive || !BELIEVES);
#ifdef REACH_LAPSE
     assert(alive || dead);
#endif
#ifdef REACH_CONTINUED
     assert(alive || life == TTL || renewed);
#endif
#ifdef REACH_LOOP
     assert(alive || idle <= TTL);
#endif
  :: queue[0].kind == MARK ->
     if
#ifdef MARK_ANY_EPOCH
     :: true ->
#else
     :: queue[0].epoch == epoch ->
#endif
#ifdef MARK_SEEN_LATE
        marked = true;
#endif
        age_to(queue[0].ticks)
     :: else
     fi
  :: queue[0].kind == MARK_ALL ->
     if
#ifdef MARK_HITS_ALL
     :: true ->
#else
     :: !renewed ->
#endif
        age_to(queue[0].ticks)
     :: else
     fi
  fi;
  queued--;
  i = 0;
  do
  :: i < queued -> queue[i].kind = queue[i + 1].kind; queue[i].epoch = queue[i + 1].epoch; queue[i].ticks = queue[i + 1].ticks; i++
  :: else -> break
  od;
  queue[i].kind = 0; queue[i].epoch = 0; queue[i].ticks = 0;
  i = 0
}

inline crash() {
  up = false; wheel = 0; life = 0; before = 0; logged = false; marked = false; useful = false; unmarked = false;
#ifdef SETTLED_BY_OLDER
  busy = false;
#endif
  i = 0;
  do
  :: i < queued -> queue[i].kind = 0; queue[i].epoch = 0; queue[i].ticks = 0; i++
  :: else -> break
  od;
  i = 0; queued = 0;
  if :: request == TAKEN -> request = 0; sent = 0 :: else fi
}

inline take_over() {
  up = true; renewed = false;
#ifndef FORGETFUL
  wheel = aged; before = aged;
#endif
#ifdef ENTRY_AGE
  wheel = entry;
#endif
#ifdef TOGETHER_TWICE
  own = aged; all = 0;
#endif
#ifdef PREDECESSOR
  old = true;
#endif
#ifdef REACH_MEMORY
  assert(!(memory && BELIEVES && aged == 0));
#endif
}

/* While the holder lives the owner may be as slow as it likes. Once it is dead we ask how long the lease lasts, so the owner must do its
   work: each tick waits until what is due was proposed, what was proposed is durable, and the last tick is marked. */
#define PROMPT (up && queued == 0 && wheel < TTL && !unmarked)
#ifdef NO_MARKS
#define MAY_MARK false
#else
#define MAY_MARK (up && queued < QUEUE)
#endif

active proctype world() {
  bool alive = true;
  do
  :: d_step { alive && (!dead || PROMPT) ->                          /* time passes */
       if :: up -> tick(wheel); tick(life) :: else fi;
       if :: !dead -> tick(age) :: else -> idle++ fi;
       if :: request != 0 -> tick(sent) :: else fi;
#if defined(FROM_EPOCH) || defined(ENTRY_AGE)
       tick(entry);
#endif
#ifdef NO_MARKS
       useful = dead;                                                 /* lives are as long as in the other variants, and leave nothing */
#else
       unmarked = dead;
#endif
       assert(idle <= BOUND)
     }
  :: d_step { alive && !dead && request == 0 -> request = SENT }
  :: d_step { alive && up && request == SENT -> arrive() }
  :: d_step { alive && !dead && request == ACKED -> age = sent; request = 0; sent = 0 }
  :: d_step { alive && request != 0 -> request = 0; sent = 0 }        /* lost, or given up */
  :: d_step { alive && up && queued > 0 -> durable() }
  :: d_step { alive && up && wheel >= TTL && queued < QUEUE ->
       look();
       if
       :: MAY_PROPOSE ->
          push(DUE, epoch, 0);
#ifdef SETTLED_BY_OLDER
          busy = true
#endif
       :: else
       fi;
       forget() }
  :: d_step { alive && MAY_MARK && OBSERVED > 0 && queue[0].kind < MARK && queue[1].kind < MARK && queue[2].kind < MARK ->
       push(MARK, epoch, OBSERVED);
#ifndef MARK_SEEN_LATE
       marked = true
#endif
     }
  :: d_step { alive && MAY_MARK && TOGETHER > 0 && queue[0].kind < MARK && queue[1].kind < MARK && queue[2].kind < MARK ->
       push(MARK_ALL, 0, TOGETHER) }
  :: d_step { alive && up && (!dead || useful) -> crash() }
  :: d_step { alive && !up -> take_over() }
  :: d_step { alive && !dead && up ->                                 /* the holder dies; its last renewals have arrived or never will */
       look();
       if :: !renewing -> dead = true; request = 0; sent = 0; age = 0 :: else fi;
       forget() }
  :: !alive -> break
  od
}
