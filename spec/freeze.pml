/* Every end is safe: parents, revoke, and units frozen until no holder can rely on them any more.

   What is modelled. Two leases, a parent and its child, each with a holder of its own, a ttl of its own and a unit that others wait for.
   A lease lapses, is released, is revoked by an operator, or (the child) ends because the parent ended in whatever way. Renewals
   and their answers take any time; a server logs a renewal (the epoch changes) or keeps it in memory (only its wheel moves); a due is under
   way for any time; the server may crash, and then counts everything from the start. The first term is short, as for every long grant.

     - A holder whose lease ended by anything but its own lapse or release may still believe: its units are frozen, for the whole last term that the
       log has for it, from the moment the end is applied, on a timer with an epoch of its own. So are those of its children, for their terms.
       It is as safe, and sooner over, to let the term's own timer run on, if renewals kept in memory have moved it (-DCONTINUES).
     - A frozen lease can be released by its holder, which stops believing before it sends, and that thaws it. It cannot be renewed, and
       neither a late renewal nor a second revoke thaws it or starts its time again.
     - A renewal that lengthens the term (the first one does) is logged before it is acknowledged: what is kept in memory never promises
       more than the log says, because the log's term is what a freeze, or the next owner, counts. No renewal shortens a term.

   What is promised. No unit is given to the next while its former holder believes, however its lease ended (S1), `force` excepted. No
   unit stays frozen longer than its term, lateness and crashes aside (S5).

   What is not in it. The races of replicas (lease.pml), aged marks (owner.pml; a freeze is a timer like others and ages with them), more
   generations, lock-delay. A unit that went to the next waiter is not followed further.

   Searches, read and run by `node spec/check.mjs freeze`; the numbers are of states, in full search.

   holds                   71,307     no unit goes to the next while its former holder believes, and none stays frozen
   holds    -DTTL=4      511,443      the same on a finer clock
   holds    -DCONTINUES -DTTL=3   515,346   the same when the freeze is the rest of the running term
   breaks   -DNO_FREEZE               a revoke that frees the units at once
   breaks   -DPARENT_ONLY             a freeze of the parent's units, and not of its children's
   breaks   -DLAPSE_FREES_CHILD       children's units freed at once because the parent's time has run
   breaks   -DPARENT_TERM             children's units frozen for the parent's term instead of their own
   breaks   -DTOO_SHORT               a freeze one tick shorter than the last acknowledged term
   breaks   -DFIRST_TERM              a freeze as long as the first term, after a renewal had made it longer
   breaks   -DLENGTHENED_IN_MEMORY    a longer term acknowledged from memory, while the log still has the short one
   breaks   -DSHORTENED               a renewal that shortens the term: its answer may be lost, and the holder counts on the old one
   breaks   -DFROM_PROPOSAL           a freeze counted from when the revoke was proposed, past renewals acknowledged since
   breaks   -DFROM_LOGGED             a freeze counted from the last logged renewal, past renewals in memory
   breaks   -DEPOCH_REUSED            a freeze that an old due of the lease can end
   breaks   -DRENEWAL_THAWS           a late renewal that ends the freeze
   breaks   -DRENEWAL_REVIVES         a late renewal that is acknowledged
   breaks   -DPARENT_RELEASE_THAWS    a release of the parent taken for a release of its children
   breaks   -DRELEASE_LATE            a holder that stops believing when its release is answered
   breaks   -DREVOKE_AGAIN            a second revoke that starts the freeze again: frozen for ever
   breaks   -DRENEWAL_FREEZES         a late renewal that starts the freeze again: frozen by a zombie for ever
   reaches  -DREACH_FORCE             with force there are two believers: the exception is a real one
   reaches  -DREACH_CHILD             a child's holder believes after its parent has lapsed and gone to the next
   reaches  -DREACH_THAW              a freeze that ran out goes to the next
   reaches  -DREACH_RELEASED          a late holder's release ends the freeze before its time
   reaches  -DREACH_STALE             a due of the lease arrives during the freeze and is void */

#ifndef TTL
#define TTL 2
#endif
#define SHORT 1             /* the first term */
#define PARENT 0
#define CHILD 1

/* the kernel and the server's wheel */
#define LIVE 0
#define FROZEN 1
#define NEXT 2              /* its unit went to the next waiter */

/* A due under way names an epoch; all that matters is whether that is still the current one. */
#define CURRENT 1
#define STALE 2

typedef Lease {
  byte stage;
  byte term;                /* how long the log says it runs */
  byte ran;                 /* ticks on the server's wheel */
  byte due;                 /* 0, CURRENT or STALE */
  byte frozen;              /* ticks since the freeze began, overdue ones and those before a crash not counted */
#ifdef FROM_LOGGED
  byte entry;               /* ticks since the last logged renewal */
#endif
#ifdef FROM_PROPOSAL
  bool revoking; byte proposed;
#endif
#ifdef LENGTHENED_IN_MEMORY
  bool longer;              /* the wheel knows of a longer term than the log */
#endif
}
Lease lease[2];

#define SENT 1
#define YES 2
#define NO 3
typedef Holder {
  bool has;
  byte age, valid;          /* ticks since the last acknowledged request was sent, and how long it is good for */
  byte request, sent, promised;
  bool release;             /* under way */
}
Holder holder[2];
#define BELIEVES(l) (holder[l].has && holder[l].age < holder[l].valid)

byte l;                     /* whose turn it is */

inline tick(clock) { if :: clock < TTL -> clock++ :: else fi }
inline new_epoch(l) { lease[l].ran = 0; if :: lease[l].due == CURRENT -> lease[l].due = STALE :: else fi }

/* The unit goes to the next waiter, in the same revision. */
inline free(l) {
  lease[l].stage = NEXT; lease[l].term = 0; lease[l].ran = 0; lease[l].due = 0; lease[l].frozen = 0;
  holder[l].has = false; holder[l].age = 0; holder[l].valid = 0; holder[l].request = 0; holder[l].sent = 0; holder[l].promised = 0; holder[l].release = false
}
inline free_safely(l) { assert(!BELIEVES(l)); free(l) }

inline freeze(l) {
  lease[l].stage = FROZEN;
#ifndef CONTINUES
  new_epoch(l);
#endif
#ifdef LENGTHENED_IN_MEMORY
  lease[l].longer = false;
#endif
#ifdef NO_FREEZE
  free_safely(l);
#endif
#ifdef FIRST_TERM
  lease[l].term = SHORT;
#endif
#ifdef TOO_SHORT
  lease[l].term--;
#endif
#ifdef FROM_LOGGED
  lease[l].ran = lease[l].entry;
#endif
#ifdef FROM_PROPOSAL
  lease[l].ran = lease[l].proposed;
#endif
}

/* What the end of the parent does to the child. */
inline orphan() {
  if
  :: lease[CHILD].stage == LIVE ->
#ifdef PARENT_TERM
     lease[CHILD].term = lease[PARENT].term;
#endif
#ifdef PARENT_ONLY
     free_safely(CHILD)
#else
     freeze(CHILD)
#endif
  :: else
  fi
}

inline revoke(l) {
  if
  :: lease[l].stage == LIVE ->
     if :: l == PARENT -> orphan() :: else fi;
     freeze(l)
  :: lease[l].stage == FROZEN ->
#ifdef REVOKE_AGAIN
     lease[l].ran = 0
#else
     skip
#endif
  fi
}

inline lapse(l) {
  if
  :: l == PARENT && lease[CHILD].stage == LIVE ->
#ifdef REACH_CHILD
     assert(!BELIEVES(CHILD));
#endif
#ifdef LAPSE_FREES_CHILD
     free_safely(CHILD)
#else
     orphan()
#endif
  :: else
  fi;
  free_safely(l)
}

inline due_arrives(l) {
  if
  :: lease[l].due == CURRENT && lease[l].stage == LIVE -> lapse(l)
  :: lease[l].due == CURRENT && lease[l].stage == FROZEN ->
#ifdef REACH_THAW
     assert(false);
#endif
     free_safely(l)
  :: lease[l].due == STALE ->
#ifdef REACH_STALE
     assert(lease[l].stage != FROZEN);
#endif
#ifdef EPOCH_REUSED
     if :: lease[l].stage == FROZEN -> free_safely(l) :: else fi;
#endif
     lease[l].due = 0
  fi
}

inline release_arrives(l) {
#ifdef REACH_RELEASED
  assert(lease[l].stage != FROZEN);
#endif
  if
  :: l == PARENT && lease[CHILD].stage == LIVE -> orphan()
  :: else
  fi;
#ifdef PARENT_RELEASE_THAWS
  if
  :: l == PARENT && lease[CHILD].stage == FROZEN -> free_safely(CHILD)
  :: else
  fi;
#endif
  free_safely(l)
}

#ifdef LENGTHENED_IN_MEMORY
#define MAY_KEEP(l) (lease[l].due == 0)
#define RUNS(l) (lease[l].longer * TTL + (!lease[l].longer) * lease[l].term)
#else
#define MAY_KEEP(l) (lease[l].due == 0 && lease[l].term == TTL)
#define RUNS(l) lease[l].term
#endif

inline acknowledge(l) { holder[l].request = YES; holder[l].promised = TTL }
inline log_renewal(l) {
  new_epoch(l); lease[l].term = TTL;
#ifdef FROM_LOGGED
  lease[l].entry = 0;
#endif
  acknowledge(l)
}
inline keep_renewal(l) {
  lease[l].ran = 0;
#ifdef LENGTHENED_IN_MEMORY
  lease[l].longer = true;
#endif
  acknowledge(l)
}
inline refuse_renewal(l) {
  holder[l].request = NO; holder[l].sent = 0;
#ifdef RENEWAL_THAWS
  free_safely(l)
#endif
#ifdef RENEWAL_REVIVES
  acknowledge(l)
#endif
#ifdef RENEWAL_FREEZES
  lease[l].ran = 0
#endif
}

active proctype world() {
  d_step {
    do
    :: l < 2 -> lease[l].term = SHORT; holder[l].has = true; holder[l].valid = SHORT; l++
    :: else -> break
    od;
    l = 0
  }
  do
  :: d_step {                                                         /* time passes */
       do
       :: l < 2 ->
          if
          :: lease[l].stage != NEXT && lease[l].ran < RUNS(l) ->
             lease[l].ran++;
             assert(lease[l].frozen < RUNS(l));
             if :: lease[l].stage == FROZEN -> lease[l].frozen++ :: else fi
          :: else
          fi;
#ifdef FROM_LOGGED
          tick(lease[l].entry);
#endif
#ifdef FROM_PROPOSAL
          if :: lease[l].revoking -> tick(lease[l].proposed) :: else fi;
#endif
          if :: holder[l].has -> tick(holder[l].age) :: else fi;
          if :: holder[l].request != 0 -> tick(holder[l].sent) :: else fi;
          l++
       :: else -> break
       od;
       l = 0
     }
  :: atomic {
       if :: l = PARENT :: l = CHILD fi;
       if
       /* its holder */
       :: d_step { lease[l].stage != NEXT && holder[l].has && holder[l].request == 0 -> holder[l].request = SENT }
       :: d_step { holder[l].request == YES && holder[l].has ->
            holder[l].age = holder[l].sent; holder[l].valid = holder[l].promised;
            holder[l].request = 0; holder[l].sent = 0; holder[l].promised = 0 }
       :: d_step { holder[l].request == NO -> holder[l].has = false; holder[l].age = 0; holder[l].valid = 0; holder[l].request = 0; holder[l].sent = 0 }
       :: d_step { holder[l].request != 0 -> holder[l].request = 0; holder[l].sent = 0; holder[l].promised = 0 }     /* lost */
       :: d_step { lease[l].stage != NEXT && !holder[l].release ->
            holder[l].release = true;
#ifndef RELEASE_LATE
            holder[l].has = false; holder[l].age = 0; holder[l].valid = 0;
            holder[l].request = 0; holder[l].sent = 0; holder[l].promised = 0
#endif
          }
       /* the server */
       :: d_step { lease[l].stage == LIVE && holder[l].request == SENT -> log_renewal(l) }
#ifdef SHORTENED
       :: d_step { lease[l].stage == LIVE && holder[l].request == SENT -> log_renewal(l); lease[l].term = SHORT; holder[l].promised = SHORT }
#endif
       :: d_step { lease[l].stage == LIVE && holder[l].request == SENT && MAY_KEEP(l) -> keep_renewal(l) }
       :: d_step { lease[l].stage == FROZEN && holder[l].request == SENT -> refuse_renewal(l) }
       :: d_step { lease[l].stage != NEXT && lease[l].ran >= RUNS(l) && lease[l].due == 0 -> lease[l].due = CURRENT }
       :: d_step { lease[l].due != 0 -> due_arrives(l) }
       :: d_step { holder[l].release -> release_arrives(l) }
#ifdef FROM_PROPOSAL
       :: d_step { lease[l].stage == LIVE && !lease[l].revoking -> lease[l].revoking = true }
       :: d_step { lease[l].stage == LIVE && lease[l].revoking -> revoke(l) }
#else
       :: d_step { lease[l].stage != NEXT -> revoke(l) }
#endif
       :: d_step { lease[l].stage != NEXT ->                          /* force */
#ifdef REACH_FORCE
            assert(!BELIEVES(l));
#endif
            if :: l == PARENT -> orphan() :: else fi;
            free(l) }
       :: d_step { true ->                                            /* a crash: the wheel is gone, and dues may be lost */
            lease[PARENT].ran = 0; lease[PARENT].due = 0; lease[PARENT].frozen = 0;
            lease[CHILD].ran = 0; lease[CHILD].due = 0; lease[CHILD].frozen = 0;
#ifdef LENGTHENED_IN_MEMORY
            lease[PARENT].longer = false; lease[CHILD].longer = false
#endif
          }
       :: else
       fi;
       l = 0
     }
  od
}
