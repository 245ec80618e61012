// A pool of threads that run command tables: each computes its share of every record, and they meet at barriers.
// Waiting spins briefly, yields, then sleeps, so that idle or oversubscribed threads cost nothing.
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "engine.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

enum { SPIN = 100, YIELD = 100, IDLE_SPIN = 2000, MAX_THREADS = 1024 };
#define ALONE __attribute__((aligned(128))) // on cache lines of its own

// A number that threads wait to see change.
typedef struct {
  _Atomic uint32_t value, sleepers;
#if !defined(__linux__)
  pthread_mutex_t lock;
  pthread_cond_t changed;
#endif
} ALONE signal_word;

struct gr_pool {
  signal_word job, round;       // a new command table; a barrier passed
  ALONE _Atomic uint32_t arrived; // at the barrier
  ALONE uint32_t threads;
  const gr_entry *table;
  const gr_record *records; // null: end
  uint32_t count;
  pthread_t *handles;
  gr_worker *workers;
  uint32_t started;
};

static inline void pause_cpu(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb");
#endif
}

static void advance(signal_word *s) {
  atomic_fetch_add(&s->value, 1);
#if defined(__linux__)
  if (atomic_load(&s->sleepers)) syscall(SYS_futex, &s->value, FUTEX_WAKE_PRIVATE, 1 << 30, 0, 0, 0);
#else
  pthread_mutex_lock(&s->lock);
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
#endif
}

static void await(signal_word *s, uint32_t seen, int spin, int yield) {
  for (int i = 0; i < spin; i++, pause_cpu())
    if (atomic_load_explicit(&s->value, memory_order_acquire) != seen) return;
  for (int i = 0; i < yield; i++, sched_yield())
    if (atomic_load_explicit(&s->value, memory_order_acquire) != seen) return;
#if defined(__linux__)
  atomic_fetch_add(&s->sleepers, 1);
  while (atomic_load(&s->value) == seen) syscall(SYS_futex, &s->value, FUTEX_WAIT_PRIVATE, seen, 0, 0, 0);
  atomic_fetch_sub(&s->sleepers, 1);
#else
  pthread_mutex_lock(&s->lock);
  while (atomic_load(&s->value) == seen) pthread_cond_wait(&s->changed, &s->lock);
  pthread_mutex_unlock(&s->lock);
#endif
}

static void meet(gr_pool *pool) {
  if (pool->threads == 1) return;
  const uint32_t round = atomic_load_explicit(&pool->round.value, memory_order_relaxed);
  if (atomic_fetch_add_explicit(&pool->arrived, 1, memory_order_acq_rel) + 1 == pool->threads) {
    atomic_store_explicit(&pool->arrived, 0, memory_order_relaxed);
    advance(&pool->round);
  } else await(&pool->round, round, SPIN, YIELD);
}

static void compute(gr_pool *pool, gr_worker *worker) {
  const gr_record *end = pool->records + pool->count;
  for (const gr_record *r = pool->records; r < end; r++) {
    pool->table[r->header.kernel].run(r, worker);
    if (r->header.flags & GR_BARRIER && r + 1 < end) meet(pool);
  }
  meet(pool);
}

typedef struct {
  gr_pool *pool;
  gr_worker *worker;
} start;

static void *serve(void *argument) {
  const start at = *(start *)argument;
  free(argument);
  for (uint32_t seen = 0;; seen++) {
    await(&at.pool->job, seen, IDLE_SPIN, 0);
    if (!at.pool->records) return 0;
    compute(at.pool, at.worker);
  }
}

static int begin_thread(gr_pool *pool, uint32_t i) {
  start *s = malloc(sizeof *s);
  if (!s) return 0;
  *s = (start){pool, &pool->workers[i]};
  if (!pthread_create(&pool->handles[i], 0, serve, s)) return 1;
  free(s);
  return 0;
}

gr_pool *gr_pool_new(uint32_t threads, const gr_entry *table) {
  if (!table || threads < 1 || threads > MAX_THREADS) return 0;
  gr_pool *pool = aligned_alloc(128, (sizeof *pool + 127) & ~(size_t)127);
  if (!pool) return 0;
  memset(pool, 0, sizeof *pool);
  pool->threads = pool->started = 1;
  pool->table = table;
  pool->handles = calloc(threads, sizeof *pool->handles);
  pool->workers = calloc(threads, sizeof *pool->workers);
  if (!pool->handles || !pool->workers) {
    gr_pool_free(pool);
    return 0;
  }
#if !defined(__linux__)
  for (int i = 0; i < 2; i++) {
    pthread_mutex_init(&(i ? &pool->job : &pool->round)->lock, 0);
    pthread_cond_init(&(i ? &pool->job : &pool->round)->changed, 0);
  }
#endif
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before); // signals are the caller's
  for (uint32_t i = 0; i < threads; i++) {
    pool->workers[i].thread = i;
    pool->workers[i].threads = threads;
    if (i && begin_thread(pool, i)) pool->started++;
  }
  pthread_sigmask(SIG_SETMASK, &before, 0);
  pool->threads = threads;
  if (pool->started == threads) return pool;
  gr_pool_free(pool);
  return 0;
}

void gr_pool_free(gr_pool *pool) {
  if (!pool) return;
  pool->records = 0;
  advance(&pool->job);
  for (uint32_t i = 1; i < pool->started; i++) pthread_join(pool->handles[i], 0);
  for (uint32_t i = 0; pool->workers && i < pool->threads; i++) free(pool->workers[i].scratch);
  free(pool->workers);
  free(pool->handles);
  free(pool);
}

int gr_pool_run(gr_pool *pool, const gr_record *records, uint32_t count) {
  if (!count) return 0;
  pool->records = records;
  pool->count = count;
  if (pool->threads > 1) advance(&pool->job);
  compute(pool, &pool->workers[0]);
  int failed = 0;
  for (uint32_t i = 0; i < pool->threads; i++) {
    failed |= pool->workers[i].failed;
    pool->workers[i].failed = 0;
  }
  return failed;
}
