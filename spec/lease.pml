/* Leases over an ordered log, without a leader and without shared clocks.

   What is modelled. Two processes want one resource. Each is a holder and a replica: it sends acquire and renew (under way for any
   time before the log has them), applies the log at its own pace, proposes a lapse when TTL has passed on its own clock since it
   applied the last grant or renewal, may release, and may crash at any time and come back as a newcomer that replays the log.
   A process that finds the resource taken waits in the queue and is granted it by the record that ends the lease before.

   What is promised. The two never believe at once that they hold it (S1), for rules 1 to 3 of the time law, and for a rule 4 that
   is laxer than ours: here a waiter may count from any acknowledged request of its own, not only from a renewal after its grant.

   What is not in it. Owned stores with renewals in memory and aged marks (owner.pml); waiting through a server and transfer
   (waiting.pml); revoke, parents and freeze (freeze.pml); clock rates (ticks are common to both; the margin of rule 1 stands for the rest).

   How it is kept small, so that "in full" means something. Time has no bound: a clock that has reached TTL stays there, because nothing
   asks how much more. The log has one (LOG records), and so have leases (LEASES). Process 0 appends first: the other half is its
   mirror image. A lapse is appended the moment it is proposed, from whatever old state its proposer is in: had it been under way for
   a while and then been accepted, its proposer could as well have proposed it at that moment, and a refused one changes nothing.

   Searches. `node spec/check.mjs lease` reads these lines and runs each of them; the numbers are of states, in full search.

   holds                              1,444,296   two processes never both believe, in every run of up to five records
   holds    -DTTL=2 -DLOG=4             814,312   two processes never both believe, on a finer clock and a shorter log
   breaks   -DUNCONDITIONAL           a lapse that ignores a renewal before it in the log
   breaks   -DFROM_REPLY              validity counted from the answer instead of from before the request
   breaks   -DEARLY                   a lapse proposed one tick too soon
   breaks   -DGRANT_RESETS_BELIEF     a waiter that counts from the news of its grant
   reaches  -DREACH_TURNS             one believes after the other's lease has lapsed
   reaches  -DREACH_RACE              a lapse is refused because a renewal stands before it in the log
   reaches  -DREACH_NEWCOMER          a newcomer proposes a lapse that will be accepted
   reaches  -DREACH_GRANT             a waiter is granted what a release set free, and believes

   A log of four is too short to see the last mistake: acquire, acquire, release, lapse, acquire. */

#ifndef TTL
#define TTL 1
#endif
#ifndef LOG
#define LOG 5
#endif
#define LEASES 3
#define NONE 15

/* records of the log */
#define ACQUIRE 1
#define RENEW 2
#define LAPSE 3
#define RELEASE 4

/* stages of a lease */
#define UNBORN 0
#define WAITING 1
#define HOLDING 2
#define ENDED 3

typedef Record { byte kind; byte lease; byte epoch }
Record log[LOG];
byte length, acquires;

typedef Process {
  /* the replica */
  byte applied;             /* records of the log applied so far */
  byte born;                /* ids given out so far */
  byte stage[LEASES];
  byte epoch[LEASES];       /* changed by each renewal: what a lapse must name */
  byte ran[LEASES];         /* ticks since this replica applied what started the epoch */
  byte holding;             /* the lease that has the resource */
#ifdef REACH_NEWCOMER
  bool newcomer;
#endif
  /* the holder */
  byte lease;               /* its lease, once an acquire was acknowledged */
  byte age;                 /* ticks since the last acknowledged request was sent */
  byte request;             /* ACQUIRE or RENEW under way, 0 when none */
  byte sent;                /* ticks since it was sent */
  byte at;                  /* where the log has it; its answer is known when that record is applied */
}
Process P[2];

#define LIVE(p, l) (P[p].stage[l] == WAITING || P[p].stage[l] == HOLDING)
#define BELIEVES(p) (P[p].lease != NONE && P[p].holding == P[p].lease && P[p].age < TTL)

#ifdef UNCONDITIONAL
#define CURRENT(p) true
#else
#define CURRENT(p) (P[p].epoch[log[k].lease] == log[k].epoch)
#endif
#ifdef FROM_REPLY
#define COUNTED(p) 0
#else
#define COUNTED(p) P[p].sent
#endif
#ifdef EARLY
#define DUE (TTL - 1)
#else
#define DUE TTL
#endif

byte i, k, out;             /* scratch, always 0 between steps so that they do not multiply states */
bool done;

inline tick(clock) { if :: clock < TTL -> clock++ :: else fi }

inline append(what, which, when) { log[length].kind = what; log[length].lease = which; log[length].epoch = when; length++ }

/* Ends a lease; the first waiter has the resource in the same step. */
inline finish(p, id) {
  P[p].stage[id] = ENDED; P[p].ran[id] = 0; P[p].epoch[id] = 0;
  if
  :: P[p].holding == id ->
     P[p].holding = NONE;
     i = 0;
     do
     :: i < LEASES && P[p].stage[i] != WAITING -> i++
     :: else -> break
     od;
     if
     :: i < LEASES ->
        P[p].stage[i] = HOLDING; P[p].holding = i;
#ifdef GRANT_RESETS_BELIEF
        if :: P[p].lease == i -> P[p].age = 0 :: else fi;
#endif
#ifdef REACH_GRANT
        if :: log[k].kind == RELEASE && P[p].lease == i -> assert(P[p].age == TTL) :: else fi;
#endif
     :: else
     fi;
     i = 0
  :: else
  fi
}

/* One record, by one replica; and, if it was this process's own request, its answer. */
inline apply(p) {
  k = P[p].applied;
  if
  :: log[k].kind == ACQUIRE ->
     out = P[p].born; P[p].born++;
     if
     :: P[p].holding == NONE -> P[p].holding = out; P[p].stage[out] = HOLDING
     :: else -> P[p].stage[out] = WAITING
     fi;
     done = true
  :: log[k].kind == RENEW ->
     out = log[k].lease;
     if
     :: LIVE(p, out) -> P[p].epoch[out]++; P[p].ran[out] = 0; done = true
     :: else
     fi
  :: log[k].kind == LAPSE ->
     if
     :: LIVE(p, log[k].lease) && CURRENT(p) ->
        finish(p, log[k].lease)
     :: else ->
#ifdef REACH_RACE
        assert(!(LIVE(p, log[k].lease) && P[p].lease == log[k].lease && P[p].age < TTL));
#endif
     fi
  :: log[k].kind == RELEASE ->
     if :: LIVE(p, log[k].lease) -> finish(p, log[k].lease) :: else fi
  fi;
  if
  :: P[p].request != 0 && P[p].at == k ->
     if
     :: done -> P[p].lease = out; P[p].age = COUNTED(p)
     :: else -> P[p].lease = NONE
     fi;
     P[p].request = 0; P[p].sent = 0; P[p].at = NONE
  :: else
  fi;
  if
  :: P[p].lease != NONE && P[p].stage[P[p].lease] == ENDED ->
     P[p].lease = NONE;
     if :: P[p].at == NONE -> P[p].request = 0; P[p].sent = 0 :: else fi
  :: else
  fi;
  if :: P[p].lease == NONE -> P[p].age = 0 :: else fi;
  P[p].applied++;
  k = 0; out = 0; done = false
}

inline crash(p) {
  P[p].applied = 0; P[p].born = 0; P[p].holding = NONE;
#ifdef REACH_NEWCOMER
  P[p].newcomer = true;
#endif
  P[p].lease = NONE; P[p].age = 0; P[p].request = 0; P[p].sent = 0; P[p].at = NONE;
  i = 0;
  do
  :: i < LEASES -> P[p].stage[i] = UNBORN; P[p].epoch[i] = 0; P[p].ran[i] = 0; i++
  :: else -> break
  od;
  i = 0
}

#define ROOM(p) (length < LOG && (p == 0 || length > 0))

active proctype world() {
  byte p, l;
  d_step {
    P[0].lease = NONE; P[0].holding = NONE; P[0].at = NONE;
    P[1].lease = NONE; P[1].holding = NONE; P[1].at = NONE
  }
  do
  :: d_step {                                                       /* time passes */
       p = 0;
       do
       :: p < 2 ->
          if :: P[p].lease != NONE -> tick(P[p].age) :: else fi;
          if :: P[p].request != 0 -> tick(P[p].sent) :: else fi;
          l = 0;
          do
          :: l < LEASES -> if :: LIVE(p, l) -> tick(P[p].ran[l]) :: else fi; l++
          :: else -> break
          od;
          p++
       :: else -> break
       od;
       p = 0; l = 0
     }
  :: atomic {
       if :: p = 0 :: p = 1 fi;
       if
       :: d_step { P[p].applied < length -> apply(p) }
       :: d_step { length < LOG && P[p].request == 0 && P[p].lease == NONE && acquires < LEASES -> P[p].request = ACQUIRE }
       :: d_step { length < LOG && P[p].request == 0 && P[p].lease != NONE -> P[p].request = RENEW }
       :: d_step { ROOM(p) && P[p].request != 0 && P[p].at == NONE ->
            P[p].at = length;
            if
            :: P[p].request == RENEW -> append(RENEW, P[p].lease, 0)
            :: P[p].request == ACQUIRE && acquires < LEASES -> append(ACQUIRE, 0, 0); acquires++
            :: else -> P[p].at = NONE; P[p].request = 0; P[p].sent = 0
            fi }
       :: d_step { ROOM(p) && P[p].request == 0 && P[p].lease != NONE ->
            append(RELEASE, P[p].lease, 0);                         /* believes no more before the release is on its way */
            P[p].lease = NONE; P[p].age = 0 }
       :: atomic {
            ROOM(p) ->
            if :: l = 0 :: l = 1 :: l = 2 fi;
            if
            :: d_step { LIVE(p, l) && P[p].ran[l] >= DUE ->
#ifdef REACH_NEWCOMER
                 assert(!(P[p].newcomer && P[p].applied == length));
#endif
                 append(LAPSE, l, P[p].epoch[l]) }
            :: else
            fi;
            l = 0 }
       :: d_step { P[p].applied > 0 || P[p].request != 0 -> crash(p) }
       :: else
       fi;
       p = 0
     }
  :: d_step { BELIEVES(0) && BELIEVES(1) -> assert(false) }
#ifdef REACH_TURNS
  :: d_step { BELIEVES(1) && P[1].stage[0] == ENDED && log[0].kind == ACQUIRE && log[1].kind == LAPSE -> assert(false) }
#endif
  od
}
