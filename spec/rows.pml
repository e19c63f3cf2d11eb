/* Renewals that are no records: a design that is not built yet (docs/decisions/idle-renewals.md). Each process has a row with a counter beside the log.

   What is modelled. Two processes want one resource. A holder renews by a change of its row: the engine raises its counter if the row is open, and
   looks at nothing else. A process that counts the other's lease reads that counter with the log; when TTL has passed on its own clock since a read
   showed the counter as it still is, it proposes a lapse that names the counter. The engine appends the lapse only while the counter is that one, and
   closes the row in the same step. A process whose row is closed reads the log before it renews by a record, which opens its row with a counter that
   was never used. Requests and proposals are under way for any time, answers too; processes crash and come back with another row.

   What is promised. The two never believe at once that they hold it (S1), although the log contains no renewal.

   What is not in it. Several leases in one row, which only close and open it more often; marks, which name counters as lapses do; losses of the log
   or of rows (rows that are lost are closed). A counter has no bound, so the model keeps for each process only whether the counter is still the one
   that it read, and whether it is still the one that its proposal names.

   Searches. `node spec/check.mjs rows` reads these lines and runs each of them; the numbers are of states, in full search.

   holds                         17,789   two processes never both believe, in every run
   holds    -DTTL=2              55,271   two processes never both believe, on a finer clock
   breaks   -DUNCHECKED               a lapse that the engine appends although the counter has changed
   breaks   -DNOT_CLOSED              a lapse that leaves the row open, so that a renewal after it is acknowledged
   breaks   -DOPENED_BLINDLY          a process whose row was closed opens it without reading the log
   breaks   -DREUSED                  a row that is opened with a counter that it had before
   breaks   -DFROM_REPLY              validity counted from the answer instead of from before the request
   breaks   -DEARLY                   a lapse proposed one tick too soon
   reaches  -DREACH_TURNS             one believes after the other's lease has lapsed
   reaches  -DREACH_RACE              a lapse is refused because the counter has changed
   reaches  -DREACH_AGAIN             one believes again after its row was closed and opened */

#ifndef TTL
#define TTL 1
#endif
#define NONE 2

/* requests */
#define ACQUIRE 1
#define RENEW 2
/* answers; also what a proposal names: nothing, the counter as it is, an older one */
#define UNDER_WAY 0
#define YES 1
#define NO 2

typedef Process {
  /* the holder */
  bool lease;               /* it was granted the lease, as far as it knows */
  byte age;                 /* ticks since the last acknowledged request was sent */
  byte request;             /* ACQUIRE or RENEW, 0 when none */
  byte sent;                /* ticks since it was sent */
  byte answer;              /* what the engine did; known to the process only when it arrives */
  bool open;                /* its row, at the engine */
  bool told;                /* it knows that its row was closed */
#ifdef REACH_AGAIN
  bool again;
#endif
  /* as the process that counts */
  bool same;                /* the counter is the one that its read showed */
  byte ran;                 /* ticks since that read */
  byte names;               /* the counter in its proposal */
}
Process P[2];

/* The log, to its end: who has the resource. */
byte holder = NONE;
#ifdef REACH_TURNS
bool lapsed;
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

byte q;                     /* scratch, always 0 between steps */

inline tick(clock) { if :: clock < TTL -> clock++ :: else fi }

/* The counter of the holder is now another one. */
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

/* A row is opened with a counter that it never had, so a counter that was read before is not that of the next lease. */
#ifdef REUSED
#define renumber() skip
#else
#define renumber() raise()
#endif

inline crash(p) {
  P[p].lease = false; P[p].age = 0; P[p].request = 0; P[p].sent = 0; P[p].answer = UNDER_WAY;
  P[p].told = false; P[p].same = false; P[p].ran = 0; P[p].names = 0;
  P[p].open = false         /* the row of the new process is another one; nothing raises the old counter any more */
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
       :: d_step { P[p].request == 0 && P[p].lease && !P[p].told -> P[p].request = RENEW }
       :: d_step { P[p].request == ACQUIRE && P[p].answer == UNDER_WAY ->     /* a record, which opens the row */
            if
            :: holder == NONE -> holder = p; P[p].open = true; P[p].answer = YES; renumber()
            :: else -> P[p].answer = NO
            fi }
       :: d_step { P[p].request == RENEW && P[p].answer == UNDER_WAY ->       /* the row alone decides */
            if
            :: P[p].open ->
               P[p].answer = YES;
               if :: holder == p -> raise() :: else fi
            :: else -> P[p].answer = NO
            fi }
       :: d_step { P[p].answer != UNDER_WAY ->                                /* the answer arrives */
            if
            :: P[p].answer == YES -> P[p].lease = true; P[p].age = COUNTED(p)
            :: P[p].answer == NO && P[p].request == RENEW -> P[p].told = true
            :: else
            fi;
            P[p].request = 0; P[p].sent = 0; P[p].answer = UNDER_WAY }
       :: d_step { P[p].told ->                                               /* reads the log to its end, and opens its row again */
            P[p].told = false; P[p].open = true;
#ifndef OPENED_BLINDLY
            if :: holder != p -> P[p].lease = false; P[p].age = 0 :: else fi;
#endif
#ifdef REACH_AGAIN
            P[p].again = true;
#endif
            if :: holder == p -> raise() :: else fi
          }
       :: d_step { P[p].lease && P[p].request == 0 && holder == p ->          /* a release: it has stopped before */
            P[p].lease = false; P[p].age = 0; P[p].open = false; holder = NONE; renumber() }
       :: d_step { holder != NONE && !P[p].same -> P[p].same = true; P[p].ran = 0 }   /* a read shows another counter */
       :: d_step { holder != NONE && P[p].same && P[p].ran >= DUE && P[p].names == 0 -> P[p].names = YES }
       :: d_step { P[p].names != 0 ->                                         /* the engine gets the proposal */
            if
            :: holder != NONE && CURRENT(p) ->
#ifdef REACH_TURNS
               lapsed = true;
#endif
#ifndef NOT_CLOSED
               P[holder].open = false;
#endif
               holder = NONE; renumber()
            :: else ->
#ifdef REACH_RACE
               assert(holder == NONE)
#endif
            fi;
            P[p].names = 0 }
       :: d_step { P[p].lease || P[p].request != 0 || P[p].same -> crash(p) }
       :: else
       fi;
       p = 0
     }
  :: d_step { BELIEVES(0) && BELIEVES(1) -> assert(false) }
#ifdef REACH_TURNS
  :: d_step { lapsed && BELIEVES(1) && P[0].lease -> assert(false) }
#endif
#ifdef REACH_AGAIN
  :: d_step { P[0].again && BELIEVES(0) -> assert(false) }
#endif
  od
}
