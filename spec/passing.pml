/* Renewals behind records that their sender has not read (src/replica/passing.ts).

   What is modelled. Two processes want one resource, on one log. A renewal of an idle process is appended without a look at what it says: if all records since the
   sender's read, as of when it sent, are renewals, the engine answers yes and the sender reads nothing. Otherwise the sender reads the log up to its record, and
   learns what became of the lease. A process that counts the other's lease reads the log, and proposes a lapse when TTL has passed on its own clock since a read
   showed the epoch as it still is in its next read. The lapse counts only for the epoch that runs when it is appended; every renewal, read or not, begins
   another. Requests and proposals are under way for any time, answers too; processes crash and come back.

   What is promised. The two never believe at once that they hold it (S1).

   What is not in it. Several leases in one renewal; marks, which are no renewals and name epochs as lapses do; who of several processes reads, which decides
   nothing; losses of the log, which the check with each append reveals as before. An epoch has no bound, so the model keeps for each process only whether it
   is still the one that it read, and whether it is still the one that its proposal names.

   Searches. `node spec/check.mjs passing` reads these lines and runs each of them; the numbers are of states, in full search.

   holds                         39,450   two processes never both believe, in every run
   holds    -DTTL=2              117,248   two processes never both believe, on a finer clock
   breaks   -DPASSES_ALL              a renewal is appended behind a lapse, and its sender is told yes
   breaks   -DREAD_SINCE              the engine compares with what the sender has read by now, not with what it had read when it sent
   breaks   -DUNKNOWN                 a renewal of a lease that the sender's read did not show passes
   breaks   -DUNNOTED                 a lapse is taken for a renewal
   breaks   -DUNCHECKED               a lapse counts although the epoch has changed
   breaks   -DSAME_EPOCH              a renewal that was not read begins no epoch
   breaks   -DFROM_REPLY              validity counted from the answer instead of from before the request
   breaks   -DEARLY                   a lapse proposed one tick too soon
   reaches  -DREACH_PASSED            one believes after a renewal that was appended without a look
   reaches  -DREACH_TURNS             one believes after the other's lease has lapsed
   reaches  -DREACH_RACE              a lapse is refused because the epoch has changed
   reaches  -DREACH_TOLD              a renewal finds a lapse before it, and its sender is told so */

#ifndef TTL
#define TTL 1
#endif
#define NONE 2

/* requests */
#define ACQUIRE 1
#define RENEW 2
/* answers; also what a proposal names: nothing, the epoch as it is, an older one */
#define UNDER_WAY 0
#define YES 1
#define NO 2

typedef Process {
  /* the holder */
  bool lease;               /* it was granted the lease, as far as it knows */
  byte age;                 /* ticks since the last acknowledged request was sent */
  byte request;             /* ACQUIRE or RENEW, 0 when none */
  byte sent;                /* ticks since it was sent */
  byte answer;              /* what became of it; known to the process only when it arrives */
  bool news;                /* a record that is no renewal follows what it has read */
  bool mine;                /* its read showed that the lease is its own */
  bool behind;              /* as news, of what it had read when it sent its request; or that did not show the lease */
  /* as the process that counts */
  bool same;                /* the epoch is the one that its read showed */
  byte ran;                 /* ticks since that read */
  byte names;               /* the epoch in its proposal */
}
Process P[2];

/* The log, to its end: who has the resource. */
byte holder = NONE;
#ifdef REACH_TURNS
bool lapsed;
#endif
#ifdef REACH_PASSED
bool passed;
#endif

#define BELIEVES(p) (P[p].lease && P[p].age < TTL)

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
#ifdef UNCHECKED
#define CURRENT(p) true
#else
#define CURRENT(p) (P[p].names == YES)
#endif
#ifdef PASSES_ALL
#define PASSES(p) true
#else
#ifdef READ_SINCE
#define PASSES(p) (!P[p].news)
#else
#define PASSES(p) (!P[p].behind)
#endif
#endif

#ifdef UNKNOWN
#define NEWS(p) P[p].news
#else
#define NEWS(p) (P[p].news || !P[p].mine)
#endif

byte q;                     /* scratch, always 0 between steps */

inline tick(clock) { if :: clock < TTL -> clock++ :: else fi }

/* The lease of the holder has another epoch now. */
inline raise() {
  q = 0;
  do
  :: q < 2 ->
     P[q].same = false; P[q].ran = 0;
     if :: P[q].names == YES -> P[q].names = NO :: else fi;
     q++
  :: else -> break
  od;
  q = 0
}

/* A record that is no renewal. */
inline noted() {
  P[0].news = true; P[0].behind = true;
  P[1].news = true; P[1].behind = true
}

/* It has read the log to its end. */
inline reads(p) {
  P[p].news = false; P[p].mine = (holder == p);
  if :: holder != NONE && !P[p].same -> P[p].same = true; P[p].ran = 0 :: else fi
}

inline crash(p) {
  P[p].lease = false; P[p].age = 0; P[p].request = 0; P[p].sent = 0; P[p].answer = UNDER_WAY;
  P[p].behind = false; P[p].same = false; P[p].ran = 0; P[p].names = 0
}

active proctype world() {
  byte p;
  do
  :: d_step {                                                       /* time passes */
       p = 0;
       do
       :: p < 2 ->
          if :: P[p].lease -> tick(P[p].age) :: else fi;
          if :: P[p].request != 0 -> tick(P[p].sent) :: else fi;
          if :: P[p].same -> tick(P[p].ran) :: else fi;
          p++
       :: else -> break
       od;
       p = 0
     }
  :: atomic {
       if :: p = 0 :: p = 1 fi;
       if
       :: d_step { P[p].request == 0 && !P[p].lease -> P[p].request = ACQUIRE }
       :: d_step { P[p].request == 0 && P[p].lease -> P[p].request = RENEW; P[p].behind = NEWS(p) }
       :: d_step { P[p].request == ACQUIRE && P[p].answer == UNDER_WAY ->
            if
            :: holder == NONE -> holder = p; P[p].answer = YES; raise()
            :: else -> P[p].answer = NO
            fi;
            noted(); reads(p) }
       :: d_step { P[p].request == RENEW && P[p].answer == UNDER_WAY ->
            if
            :: PASSES(p) ->
#ifdef REACH_PASSED
               if :: p == 0 -> passed = true :: else fi;
#endif
               P[p].answer = YES;
#ifndef SAME_EPOCH
               if :: holder == p -> raise() :: else fi
#endif
            :: else ->
               if
               :: holder == p -> P[p].answer = YES; raise()
               :: else ->
#ifdef REACH_TOLD
                  assert(false);
#endif
                  P[p].answer = NO
               fi;
               reads(p)
            fi }
       :: d_step { P[p].answer != UNDER_WAY ->                                /* the answer arrives */
            if
            :: P[p].answer == YES -> P[p].lease = true; P[p].age = COUNTED(p)
            :: P[p].answer == NO -> P[p].lease = false; P[p].age = 0
            fi;
            P[p].request = 0; P[p].sent = 0; P[p].answer = UNDER_WAY; P[p].behind = false }
       :: d_step { P[p].news || (holder != NONE && !P[p].same) ->             /* it reads for another reason, as when it is woken, or because it is the reader */
            if :: P[p].request == 0 && holder != p -> P[p].lease = false; P[p].age = 0 :: else fi;
            reads(p) }
       :: d_step { P[p].lease && P[p].request == 0 && !P[p].news && holder == p -> /* a release: it has stopped before */
            P[p].lease = false; P[p].age = 0; holder = NONE; raise(); noted(); reads(p) }
       :: d_step { holder != NONE && P[p].same && P[p].ran >= DUE && P[p].names == 0 -> P[p].names = YES }
       :: d_step { P[p].names != 0 ->                                         /* the lapse is appended */
            if
            :: holder != NONE && CURRENT(p) ->
#ifdef REACH_TURNS
               lapsed = true;
#endif
               holder = NONE; raise()
            :: else ->
#ifdef REACH_RACE
               assert(holder == NONE)
#endif
            fi;
#ifndef UNNOTED
            noted();
#endif
            P[p].names = 0; reads(p);
            if :: P[p].request == 0 && holder != p -> P[p].lease = false; P[p].age = 0 :: else fi }
       :: d_step { P[p].lease || P[p].request != 0 || P[p].same -> crash(p); reads(p) }
       :: else
       fi;
       p = 0
     }
  :: d_step { BELIEVES(0) && BELIEVES(1) -> assert(false) }
#ifdef REACH_PASSED
  :: d_step { passed && BELIEVES(0) -> assert(false) }
#endif
#ifdef REACH_TURNS
  :: d_step { lapsed && BELIEVES(1) && P[0].lease -> assert(false) }
#endif
  od
}
