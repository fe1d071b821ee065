// Worker services (protocol P10): two services with up to two processes each, two tasks of one group, each claim answered or not.
// A claim names what its process holds and counts as the start of what it takes. A killer ends its process each time it runs.
#include "explore.h"

enum RowState : u8 { READY, CLAIMED, DONE, CANCELLED, POISON };
enum Life : u8 { NONE, UP, CUT, DEAD };              // CUT: runs on and reaches no API; DEAD: its journal may stay
enum Run : u8 { NOT, RUNS, OVER };                   // OVER: ended, and its report is not answered yet
enum Group : u8 { OPEN, ENDING, SETTLED };
static const int TASKS = 2, SERVICES = 2;

struct Row { u8 state, attempt, service, lost, alone, aged, stranded; };   // stranded: under a lease that has ended
struct Registration { u8 incarnation, current, waits; };
struct Process { u8 life, incarnation, registered, run[TASKS], attempt[TASKS], reported[TASKS]; };
struct Late { u8 sent, incarnation, held; };         // a claim whose sender has given up waiting for its answer
struct S { Row row[TASKS]; Registration registration[SERVICES]; Process process[SERVICES][2]; Late late[SERVICES]; u8 group, faults, lost_answers, stops, cancels; };

struct Case { const char *name; int services, slots, killers, faults, lost_answers, stops, cancels; bool endless, better, busy_better; };
static Case C;
static bool killer(int t) { return t < C.killers; }
static bool ended(const Row &r) { return r.state >= DONE; }
static bool goes_on(const S &s) { return s.group == OPEN; }
static int rows_of(const S &s, int v) { int n = 0; for (auto &r : s.row) n += r.state == CLAIMED && r.service == v; return n; }

static bool holds_alone(const S &s, int v) { for (auto &r : s.row) if (r.state == CLAIMED && r.service == v && r.alone) return true; return false; }

// The transaction that ends a registration, with its leases: keys are the attempts in the journal of the next process.
static void end_registration(S &s, int v, const Process *next, bool charge) {
  s.registration[v].current = s.registration[v].waits = 0;
  for (int t = 0; t < TASKS; t++) { Row &r = s.row[t];
    if (r.state != CLAIMED || r.service != v) continue;
    if (!rule("end_requeues")) { r.stranded = 1; continue; }
    if (next && next->run[t] == OVER && next->attempt[t] == r.attempt && rule("journal_keys")) continue;
    if (charge) { r.lost++;
      if (r.lost > 2) { if (!killer(t) && !C.faults) broken("an innocent ends as poison"); r.state = POISON; continue; } }
    r.state = READY; r.aged = 1; r.alone = 0; }
}

// One claim in PostgreSQL; what it answers is written to the process only if the answer arrives.
static bool claim(S &s, int v, int incarnation, int held, u8 *answer) {
  Registration &g = s.registration[v];
  if (!g.current || (incarnation != g.incarnation && rule("incarnation"))) return false;
  if (incarnation != g.incarnation) broken("an earlier process claims");
  g.waits = 0;
  if (rule("returns_unheld")) for (int t = 0; t < TASKS; t++) if (s.row[t].state == CLAIMED && s.row[t].service == v && !(held >> t & 1)) answer[t] = s.row[t].attempt;
  if (!goes_on(s) && rule("claim_sees_state")) return true;
  bool full = (v == 0 && C.busy_better) || (holds_alone(s, v) && rule("nothing_beside")), better_waits = v == 1 && C.better && s.registration[0].current && s.registration[0].waits;
  if (!full) for (int t = 0; t < TASKS; t++) { Row &r = s.row[t];
    if (r.state != READY || rows_of(s, v) >= C.slots) continue;
    if (better_waits && !(r.aged && rule("preference_ends"))) continue;
    bool alone = r.lost >= 2 && rule("alone");
    if (alone && rows_of(s, v)) break;               // nothing behind it either: else it never has the service to itself
    if (!goes_on(s)) broken("a task of a group that has ended is claimed");
    r.state = CLAIMED; r.attempt++; r.service = v; r.alone = alone; answer[t] = r.attempt;
    if (alone) break; }
  if (!rows_of(s, v) || full) g.waits = 1;
  return true;
}

template <class Emit> static void next(const S &s, Emit emit) {
  for (int t = 0; t < TASKS; t++) if (s.row[t].state == READY && !s.row[t].aged && C.better) { S n = s; n.row[t].aged = 1; emit(n, true, text("preference_seconds of task %d are over", t)); }
  if (s.cancels && s.group == OPEN) { S n = s; n.cancels--; n.group = ENDING; emit(n, false, "the group is cancelled"); }
  if (s.group == ENDING) for (int t = 0; t < TASKS; t++) if (s.row[t].state == READY) { S n = s; n.row[t].state = CANCELLED; emit(n, true, text("task %d is discarded", t)); }
  bool all = true, claimed = false; for (auto &r : s.row) { all &= ended(r); claimed |= r.state == CLAIMED; }
  if (s.group != SETTLED && (all || (s.group == ENDING && !claimed && !rule("settle_waits")) || (s.group == ENDING && !rule("settle_waits")))) {
    S n = s; n.group = SETTLED; if (!all) broken("a group settles before its tasks have ended"); emit(n, true, "the group settles; the leases of services end with it"); }
  for (int v = 0; v < C.services; v++) {
    const Registration &g = s.registration[v];
    if (s.late[v].sent) { S n = s; u8 nobody[TASKS] = {0}; Late &l = n.late[v]; l.sent = 0; claim(n, v, l.incarnation, l.held, nobody); emit(n, true, text("a claim of %d that was given up arrives", v)); }
    bool silent = true; for (auto &p : s.process[v]) silent &= !(p.life == UP && p.registered && p.incarnation == g.incarnation);
    if (g.current && silent) { S n = s; end_registration(n, v, 0, true); emit(n, true, text("silence of service %d is over", v)); }
    for (int i = 0; i < 2; i++) {
      const Process &p = s.process[v][i], &other = s.process[v][!i]; int held = 0, runs = 0;
      for (int t = 0; t < TASKS; t++) { held |= (p.run[t] == RUNS || (p.run[t] == OVER && (rule("held_until_answered") || !p.reported[t]))) << t; runs += p.run[t] == RUNS; }
      if (p.life == UP && !p.registered) for (int lost = 0; lost <= (s.lost_answers > 0); lost++) {
        S n = s; Process &q = n.process[v][i]; Registration &h = n.registration[v];
        if (p.incarnation < h.incarnation) { memset(&q, 0, sizeof q); emit(n, true, text("process %d.%d is superseded and ends", v, i)); break; }
        if (p.incarnation > h.incarnation || !h.current) { if (h.current) end_registration(n, v, &p, true); h.incarnation = p.incarnation; h.current = 1; }
        if (lost) { n.lost_answers--; emit(n, false, text("process %d.%d registers, answer lost", v, i)); continue; }
        q.registered = 1; emit(n, true, text("process %d.%d registers", v, i)); }
      if (p.life == UP && p.registered) {
        if (!g.current) { S n = s; n.process[v][i].registered = 0; emit(n, true, text("process %d.%d learns that its registration is over", v, i)); }
        else if (g.incarnation != p.incarnation) { S n = s; memset(&n.process[v][i], 0, sizeof(Process)); emit(n, true, text("process %d.%d learns that it is superseded, and ends", v, i)); }
        if (runs < C.slots) for (int lost = 0; lost <= 2 * (s.lost_answers > 0); lost++) {
          S n = s; u8 answer[TASKS] = {0}; Process &q = n.process[v][i];
          if (lost == 2) { if (n.late[v].sent) continue; n.lost_answers--; n.late[v] = {1, p.incarnation, (u8)held}; emit(n, false, text("process %d.%d gives up a claim on its way", v, i)); continue; }
          if (!claim(n, v, p.incarnation, held, answer)) continue;
          if (lost) { n.lost_answers--; emit(n, false, text("process %d.%d claims, answer lost", v, i)); continue; }
          int now = runs; for (int t = 0; t < TASKS; t++) if (answer[t] && q.run[t] != RUNS) {
            if (q.run[t] == OVER && q.attempt[t] == answer[t]) broken("a task that has ended here is started again");
            q.run[t] = RUNS; q.attempt[t] = answer[t]; q.reported[t] = 0; now++; }
          emit(n, true, text("process %d.%d claims", v, i)); }
        for (int t = 0; t < TASKS; t++) if (p.run[t]) {
          const Row &r = s.row[t]; bool open = r.state == CLAIMED && r.service == v && r.attempt == p.attempt[t];
          if (p.run[t] == RUNS && (!open || !goes_on(s)) && rule("stop_orders")) { S n = s; if (open) n.process[v][i].run[t] = OVER; else n.process[v][i].run[t] = NOT; emit(n, true, text("process %d.%d stops task %d, as its heartbeat says", v, i, t)); } } }
      if (p.life == UP) for (int t = 0; t < TASKS; t++) if (p.run[t] == OVER) for (int lost = 0; lost <= (s.lost_answers > 0); lost++) {
        S n = s; Row &r = n.row[t]; Process &q = n.process[v][i];
        bool counts = !ended(r) && (r.attempt == p.attempt[t] || !rule("attempt")) && (r.service == v || !rule("attempt"));
        if (counts && r.attempt != p.attempt[t]) broken("the report of a superseded attempt counts");
        if (counts && s.group == SETTLED) broken("a result after the settlement");
        if (counts) { r.state = goes_on(s) ? DONE : CANCELLED; r.stranded = 0; }
        if (lost) { n.lost_answers--; q.reported[t] = 1; emit(n, false, text("process %d.%d reports task %d, answer lost", v, i, t)); }
        else { q.run[t] = NOT; q.reported[t] = 0; emit(n, true, text("process %d.%d reports task %d", v, i, t)); } }
      if (p.life == UP || p.life == CUT) for (int t = 0; t < TASKS; t++) if (p.run[t] == RUNS) {
        bool may = !(s.row[t].alone && s.row[t].service == v && s.row[t].attempt == p.attempt[t]) || runs == 1;   // one that runs alone waits for the others
        if (!may) continue;
        if (killer(t)) { S n = s; Process &q = n.process[v][i]; q.life = DEAD; q.registered = 0; for (int o = 0; o < TASKS; o++) if (q.run[o] == RUNS) q.run[o] = NOT; emit(n, true, text("task %d kills process %d.%d", t, v, i)); }
        else if (!(C.endless && t == 0)) { S n = s; n.process[v][i].run[t] = OVER; emit(n, true, text("task %d ends in process %d.%d", t, v, i)); } }
      if (p.life == UP && s.faults) {
        S n = s; Process &q = n.process[v][i]; n.faults--; q.life = DEAD; q.registered = 0; for (int t = 0; t < TASKS; t++) if (q.run[t] == RUNS) q.run[t] = NOT; emit(n, false, text("FAULT: process %d.%d is killed", v, i));
        for (int t = 0; t < TASKS; t++) q.run[t] = NOT; emit(n, false, text("FAULT: process %d.%d is killed, its journal is lost", v, i));
        S c = s; c.faults--; c.process[v][i].life = CUT; emit(c, false, text("FAULT: process %d.%d is cut off", v, i)); }
      if (p.life == CUT) { S n = s; n.process[v][i].life = UP; emit(n, true, text("process %d.%d is back", v, i)); }
      if (p.life == UP && p.registered && s.stops) {   // a stop in order: goodbye, with what runs given up
        S n = s; n.stops--; Process &q = n.process[v][i]; bool mine = g.current && (g.incarnation == p.incarnation || !rule("goodbye_names_process"));
        if (mine && g.incarnation != p.incarnation) broken("a goodbye ends the registration of a later process");
        if (mine) end_registration(n, v, 0, !rule("goodbye_is_free"));
        q.life = DEAD; q.registered = 0; for (int t = 0; t < TASKS; t++) if (q.run[t] == RUNS) q.run[t] = NOT; emit(n, false, text("process %d.%d says goodbye and ends", v, i)); }
      // A supervisor starts the next process where one has ended, or beside one that is cut off.
      bool begins = p.life == DEAD || (p.life == NONE && other.life == CUT);
      if (begins && p.incarnation < 14 && other.life != UP) { S n = s; Process &q = n.process[v][i]; q.life = UP; q.registered = 0; q.incarnation = (s.registration[v].incarnation > p.incarnation ? s.registration[v].incarnation : p.incarnation) + 1; emit(n, true, text("process %d.%d starts", v, i)); }
    } }
}

static void small(S &s) {                            // incarnations count only by their order
  for (int v = 0; v < SERVICES; v++) { std::vector<u8> seen = {0};
    auto all = [&](auto visit) { visit(s.registration[v].incarnation); for (auto &p : s.process[v]) visit(p.incarnation); if (s.late[v].sent) visit(s.late[v].incarnation); else memset(&s.late[v], 0, sizeof(Late)); };
    all([&](u8 &x) { seen.push_back(x); }); std::sort(seen.begin(), seen.end()); seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
    all([&](u8 &x) { x = std::lower_bound(seen.begin(), seen.end(), x) - seen.begin(); });
    for (auto &p : s.process[v]) for (int t = 0; t < TASKS; t++) if (p.run[t] == NOT) p.attempt[t] = p.reported[t] = 0; }
  for (int t = 0; t < TASKS; t++) { Row &r = s.row[t]; std::vector<u8> seen = {0, r.attempt};   // attempts, too
    for (auto &v : s.process) for (auto &p : v) seen.push_back(p.attempt[t]);
    std::sort(seen.begin(), seen.end()); seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
    auto rank = [&](u8 x) { return (u8)(std::lower_bound(seen.begin(), seen.end(), x) - seen.begin()); };
    r.attempt = rank(r.attempt); for (auto &v : s.process) for (auto &p : v) p.attempt[t] = rank(p.attempt[t]);
    if (ended(r)) { r.lost = r.alone = r.aged = r.service = 0; } }
}

static void check(const S &s) {
  if (s.group == SETTLED) for (auto &r : s.row) if (!ended(r)) broken("an unfinished task in a settled group");
  for (int v = 0; v < C.services; v++) if (holds_alone(s, v) && rows_of(s, v) > 1) broken("a task that must run alone has company");
}

static const Case CASES[] = {
  // name                  services slots killers faults lost stops cancels endless better busy
  {"answers-lost",          1, 2, 0, 0, 3, 0, 0, false, false, false}, {"kills",               1, 2, 0, 3, 0, 0, 0, false, false, false},
  {"kills-and-answers",     1, 2, 0, 2, 2, 0, 0, false, false, false}, {"kills-two-services",  2, 1, 0, 2, 0, 0, 0, false, false, false},
  {"cancel",                1, 2, 0, 1, 1, 0, 1, false, false, false}, {"cancel-endless",      2, 1, 0, 1, 1, 0, 1, true, false, false},
  {"stops",                 1, 2, 0, 0, 1, 3, 0, false, false, false}, {"stops-and-kills",     1, 2, 0, 1, 1, 2, 0, false, false, false}, {"better-waits",        2, 1, 0, 1, 1, 0, 0, false, true, false},
  {"better-never-takes",    2, 1, 0, 0, 1, 0, 0, false, true, true},   {"killer-and-innocent", 1, 2, 1, 0, 1, 0, 0, false, false, false},
  {"killer-two-services",   2, 2, 1, 0, 0, 0, 0, false, false, false}, {"two-killers",         1, 2, 2, 0, 1, 1, 0, false, false, false} };

static bool run(const Case &c, bool verbose) {
  C = c; Explorer<S> e; e.next = [](const S &s, Explorer<S>::Step step) { next(s, step); }; e.check = check; e.same_by_symmetry = small;
  e.goals = {{"some task never ends", [](const S &s) { return s.group == SETTLED || (ended(s.row[0]) && ended(s.row[1])) || (C.endless && s.group == OPEN && ended(s.row[1])); }}};
  if (!c.endless) e.goals.push_back({"some group never settles", [](const S &s) { return s.group == SETTLED; }});
  else e.goals.push_back({"a cancelled group never settles", [](const S &s) { return s.group != ENDING; }});
  S start; memset(&start, 0, sizeof start); start.faults = c.faults; start.lost_answers = c.lost_answers; start.stops = c.stops; start.cancels = c.cancels;
  for (int v = 0; v < c.services; v++) { start.process[v][0].life = UP; start.process[v][0].incarnation = 1; }
  return e.run(c.name, start, verbose);
}

int main(int count, char **words) {
  if (count > 1) { for (int i = 2; i < count; i++) DROPPED.insert(words[i] + (words[i][0] == '-')); for (auto &c : CASES) if (!strcmp(c.name, words[1])) return !run(c, true); return 2; }
  printf("== services: the rules as written\n"); bool good = true; for (auto &c : CASES) good &= run(c, false);
  const char *drops[][2] = {{"incarnation", "kills-and-answers"}, {"end_requeues", "kills"}, {"returns_unheld", "answers-lost"}, {"held_until_answered", "answers-lost"}, {"attempt", "kills"},
    {"journal_keys", "kills-and-answers"}, {"claim_sees_state", "cancel"}, {"settle_waits", "cancel"}, {"stop_orders", "cancel-endless"}, {"preference_ends", "better-never-takes"}, {"alone", "killer-and-innocent"}, {"nothing_beside", "killer-and-innocent"},
    {"goodbye_is_free", "stops"}, {"goodbye_names_process", "stops-and-kills"}};
  printf("== each rule left out\n");
  for (auto &d : drops) { DROPPED = {d[0]}; for (auto &c : CASES) if (!strcmp(c.name, d[1])) { printf("without %-22s", d[0]); run(c, false); } }
  return !good;
}
