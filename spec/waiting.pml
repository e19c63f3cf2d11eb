/* Waiting through a server, release and transfer: who may believe, from when, and until when?

   What is modelled. Two clients of one server want one resource. Every message (acquire, renew, release, transfer, each answer, the news of
   a grant) takes any time, and those of one client may overtake each other: it may have changed its connection. The server keeps a
   waiter's lease alive while it sees the waiter's connection; it may see it broken at any time, also when the client sees nothing. A
   lease that was not kept alive for TTL lapses. A holder may give its lease to another client. A client may die at any time.

     - A waiter that learns of its grant, and a recipient that learns of a transfer, renew first, and believe when that is acknowledged,
       counted from before it was sent (rule 4).
     - A holder that releases or transfers stops believing before it sends. From then on no answer to an older renewal gives belief back, and
       no renewal is sent until the answer is there: it could overtake. If the transfer was refused, belief returns with the next renewal.
     - Only the holder itself transfers. A move by another client is a revoke (freeze.pml), since the holder does not know of it.
     - The server keeps waiters alive, not holders: from the grant on, the client's own renewals count.

   What is promised. No two clients believe at once (S1). A granted lease outlives the last sign of its client's life (a request of its
   own, its connection while it waited, the grant) by TTL and no more, lateness of the lapse aside (S5, S14).

   What is not in it. The log and its replicas: the kernel is one step here (lease.pml has the races of the log). Order in the queue: any
   waiter may be next. Ids: a client asks again only when its former lease is gone, and what is under way for a former lease counts for nothing.

   Searches, read and run by `node spec/check.mjs waiting`; the numbers are of states, in full search.

   holds                  946,963     two clients never both believe, and no lease outlives its client's last sign of life
   holds    -DTTL=3     2,096,529     the same on a finer clock
   breaks   -DNEWS_BELIEVED           a waiter that believes from the news of its grant
   breaks   -DRECIPIENT_BELIEVES      a recipient that believes from the news of the transfer
   breaks   -DFROM_REPLY              validity counted from the answer to the renewal
   breaks   -DGIVER_LATE              a giver that stops believing when the transfer is answered
   breaks   -DRELEASE_LATE            a holder that stops believing when its release is answered
   breaks   -DOLD_ACK                 belief given back by the answer to a renewal sent before the transfer or release
   breaks   -DRENEW_BEHIND            a renewal sent behind a transfer that is not answered yet, and believed
   breaks   -DBY_OPERATOR             a transfer by an operator, unknown to the holder
   breaks   -DKEEPS_HOLDER            a server that keeps alive also what was granted: a hung client has it for ever
   breaks   -DKEEPS_DEAD              a server that keeps a waiter alive after its connection broke
   reaches  -DREACH_WAITED            a waiter learns of its grant, renews, and believes
   reaches  -DREACH_LATE_NEWS         the news of a grant arrives when the lease has already lapsed
   reaches  -DREACH_MOVED             a recipient learns of the transfer, renews, and believes
   reaches  -DREACH_REFUSED           a giver whose transfer was refused believes again
   reaches  -DREACH_OLD_ACK           the answer to an older renewal arrives while a transfer is under way */

#ifndef TTL
#define TTL 2
#endif
#ifdef REACH_WAITED
#define REACH 1
#elif defined(REACH_MOVED)
#define REACH 2
#elif defined(REACH_REFUSED)
#define REACH 3
#endif
#ifdef REACH
#define FOLLOWS(what) client[c].how = what
#else
#define FOLLOWS(what) skip
#endif

/* the kernel, in the server */
#define NOTHING 0
#define WAITING 1
#define HOLDING 2
#define FREE 15

typedef Lease {
  byte stage;
  byte ran;                 /* ticks since it was last renewed, by its client or for it */
  byte silent;              /* ticks since its client's last sign of life, overdue lapses not counted */
  bool seen;                /* the server sees the client's connection */
}
Lease lease[2];
byte holder = FREE;

/* a client */
#define OUT 0
#define WAITS 1             /* it has asked */
#define TOLD 2              /* it knows of a grant and does not believe yet */
#define HAS 3               /* it had a renewal acknowledged: believes while that is young enough */

#define ACQUIRE 1
#define RENEW 2
#define RELEASE 3
#define TRANSFER 4
#define YES 5               /* answers on their way back */
#define NO 6
#define QUEUED 7

typedef Client {
  byte mind;
  byte age;                 /* ticks since the last acknowledged request was sent */
  byte request, sent;       /* an acquire or renew under way, or its answer; ticks since it was sent */
  bool hollow;              /* its answer gives no belief: a farewell was sent after it */
  byte farewell;            /* a release or transfer under way, or its answer */
  bool news;                /* the news of a grant is on its way */
#ifdef REACH
  byte how;                 /* what its next belief follows */
#endif
}
Client client[2];
#define BELIEVES(c) (client[c].mind == HAS && client[c].age < TTL)
#ifdef RENEW_BEHIND
#define MAY_RENEW (client[c].mind != OUT || client[c].farewell == TRANSFER)
#else
#define MAY_RENEW (client[c].mind != OUT && client[c].farewell == 0)
#endif

byte c, d;                  /* who acts, and its neighbour */

inline tick(clock) { if :: clock < TTL -> clock++ :: else fi }

inline grant(c) { lease[c].stage = HOLDING; holder = c; lease[c].silent = 0; client[c].news = true }
inline gone(c) {
  lease[c].stage = NOTHING; lease[c].ran = 0; lease[c].silent = 0; lease[c].seen = false;
  if :: holder == c -> holder = FREE :: else fi
}
inline heard(c) { lease[c].ran = 0; lease[c].silent = 0 }

inline arrive(c) {
  if
  :: client[c].request == ACQUIRE ->
     if
     :: lease[c].stage != NOTHING -> client[c].request = NO
     :: lease[c].stage == NOTHING && holder == FREE -> lease[c].stage = HOLDING; holder = c; client[c].request = YES
     :: lease[c].stage == NOTHING && holder != FREE -> lease[c].stage = WAITING; lease[c].seen = true; client[c].request = QUEUED
     fi
  :: client[c].request == RENEW ->
     if
     :: lease[c].stage == HOLDING -> heard(c); client[c].request = YES
     :: lease[c].stage == WAITING -> heard(c); client[c].request = QUEUED
     :: lease[c].stage == NOTHING -> client[c].request = NO
     fi
  fi
}

#ifdef FROM_REPLY
#define COUNTED 0
#else
#define COUNTED client[c].sent
#endif

inline leave(c) { client[c].mind = OUT; client[c].age = 0; FOLLOWS(0) }

inline answer(c) {
#ifdef REACH_OLD_ACK
  assert(!(client[c].farewell == TRANSFER && client[c].request == YES));
#endif
  if
#ifndef OLD_ACK
  :: client[c].hollow
#endif
  :: !client[c].hollow && client[c].request == YES ->
#ifdef REACH
     assert(client[c].how != REACH);
#endif
     client[c].mind = HAS; client[c].age = COUNTED
#ifdef OLD_ACK
  :: client[c].hollow && client[c].request == YES -> client[c].mind = HAS; client[c].age = COUNTED
  :: client[c].hollow && client[c].request != YES
#endif
  :: !client[c].hollow && client[c].request == NO -> leave(c)
  :: !client[c].hollow && client[c].request == QUEUED -> if :: client[c].mind == OUT -> client[c].mind = WAITS :: else fi
  fi;
  client[c].request = 0; client[c].sent = 0; client[c].hollow = false
}

/* Stops believing, then sends. */
inline bid_farewell(c, what) {
  client[c].farewell = what;
  client[c].hollow = client[c].request != 0;
  client[c].news = false;
  if
#ifdef GIVER_LATE
  :: what == TRANSFER
#endif
#ifdef RELEASE_LATE
  :: what == RELEASE
#endif
  :: else -> client[c].mind = OUT; client[c].age = 0
  fi
}

inline take_leave(c) {
  if
  :: client[c].farewell == RELEASE -> gone(c); client[c].farewell = YES
  :: client[c].farewell == TRANSFER ->
     if
     :: lease[c].stage == HOLDING && lease[d].stage != HOLDING -> gone(c); heard(d); grant(d); client[c].farewell = YES
     :: else -> client[c].farewell = NO
     fi
  fi
}

#if defined(KEEPS_HOLDER)
#define KEPT(l) (lease[l].seen && lease[l].stage != NOTHING)
#elif defined(KEEPS_DEAD)
#define KEPT(l) (lease[l].stage == WAITING)
#else
#define KEPT(l) (lease[l].stage == WAITING && lease[l].seen)
#endif

active proctype world() {
  do
  :: d_step {                                                         /* time passes */
       d = 0;
       do
       :: d < 2 ->
          if
          :: lease[d].stage != NOTHING && lease[d].ran < TTL ->
             assert(lease[d].silent < TTL);                           /* one more tick would be a tick too many */
             if :: !(lease[d].stage == WAITING && lease[d].seen) -> lease[d].silent++ :: else fi;
             if :: !KEPT(d) -> lease[d].ran++ :: else fi
          :: else
          fi;
          if :: client[d].mind == HAS -> tick(client[d].age) :: else fi;
          if :: client[d].request != 0 -> tick(client[d].sent) :: else fi;
          d++
       :: else -> break
       od;
       d = 0
     }
  :: atomic {
       if :: c = 0 :: c = 1 fi;
       d = 1 - c;
       if
       /* the client */
       :: d_step { client[c].mind == OUT && client[c].request == 0 && client[c].farewell == 0 && lease[c].stage == NOTHING -> client[c].request = ACQUIRE }
       :: d_step { client[c].request == 0 && MAY_RENEW -> client[c].request = RENEW }
       :: d_step { client[c].request >= YES -> answer(c) }
       :: d_step { client[c].request != 0 && client[c].farewell == 0 && client[c].mind == HAS -> client[c].request = 0; client[c].sent = 0 }   /* lost */
       :: d_step { client[c].news ->
            client[c].news = false;
#ifdef REACH_LATE_NEWS
            assert(lease[c].stage == HOLDING);
#endif
            if
#ifdef NEWS_BELIEVED
            :: client[c].mind == WAITS -> client[c].mind = HAS; client[c].age = 0
#endif
#ifdef RECIPIENT_BELIEVES
            :: client[c].mind == OUT -> client[c].mind = HAS; client[c].age = 0
#endif
            :: else ->
               if
               :: client[c].mind == WAITS -> client[c].mind = TOLD; FOLLOWS(1)
               :: client[c].mind == OUT -> client[c].mind = TOLD; FOLLOWS(2)
               :: else
               fi
            fi }
       :: d_step { client[c].mind != OUT && client[c].farewell == 0 -> bid_farewell(c, RELEASE) }
       :: d_step { client[c].mind == HAS && client[c].farewell == 0 -> bid_farewell(c, TRANSFER) }
       :: d_step { client[c].farewell == YES -> client[c].farewell = 0; leave(c) }
       :: d_step { client[c].farewell == NO -> client[c].farewell = 0; client[c].mind = TOLD; FOLLOWS(3) }
       :: d_step { client[c].mind != OUT && client[c].farewell == 0 -> leave(c); client[c].request = 0; client[c].sent = 0 }  /* dies */
       /* the server */
       :: d_step { (client[c].request == ACQUIRE || client[c].request == RENEW) -> arrive(c) }
       :: d_step { (client[c].farewell == RELEASE || client[c].farewell == TRANSFER) -> take_leave(c) }
       :: d_step { client[c].farewell == TRANSFER -> client[c].farewell = NO }     /* the recipient is not entitled, say */
       :: d_step { lease[c].seen -> lease[c].seen = false }
#ifdef BY_OPERATOR
       :: d_step { holder == c -> gone(c); heard(d); grant(d) }
#endif
       :: d_step { lease[c].stage == WAITING && holder == FREE -> grant(c) }
       :: d_step { lease[c].stage != NOTHING && lease[c].ran >= TTL -> gone(c) }
       :: else
       fi;
       c = 0; d = 0
     }
  :: d_step { BELIEVES(0) && BELIEVES(1) -> assert(false) }
  od
}
