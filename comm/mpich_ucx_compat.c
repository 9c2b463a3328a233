// Two cures for MPICH over UCX (device ch4:ucx, as in Debian 12), linked into executables. The linker exports these
// functions because libmpich.so refers to them, and so libmpich calls them instead of UCX's and its own.
//
// 1. MPICH's progress loop never gives its core away: with more ranks than cores a barrier takes milliseconds (8 ranks
// on
//    2 cores: 32 ms; with this 0.02 ms). Here idle progress yields, then sleeps.
// 2. MPI_Finalize of MPICH 4.0 over TCP deadlocks: some ranks block in the process manager's barrier while another
// waits
//    for them to answer the flush of its endpoint (pmodels/mpich#6596). Here all ranks meet first, so that nothing is
//    in flight, and endpoints are then closed without a flush.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

enum { kYields = 300, kShortSleeps = 2000, kShortSleepNs = 20000, kLongSleepNs = 50000 };
enum { kPollGapNs = 100000 };  // polls further apart are not a waiting loop

unsigned ucp_worker_progress(void* worker);
void* ucp_disconnect_nb(void* endpoint);

static atomic_int finalizing;

static long long now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000LL + time.tv_nsec;
}

// RTLD_NEXT: the definition in the libraries behind the executable.
static void* next_definition(const char* name) { return dlsym(RTLD_NEXT, name); }

unsigned ucp_worker_progress(void* worker) {
  typedef unsigned (*Progress)(void*);
  static _Atomic(Progress) real;
  static _Thread_local int idle;
  static _Thread_local long long last_ns;
  Progress progress = atomic_load_explicit(&real, memory_order_relaxed);
  if (!progress) {
    progress = (Progress)next_definition("ucp_worker_progress");
    atomic_store_explicit(&real, progress, memory_order_relaxed);
  }
  const unsigned events = progress(worker);
  if (events) {
    idle = 0;
    return events;
  }
  const long long now = now_ns();
  if (now - last_ns > kPollGapNs) idle = 0;
  if (++idle <= kYields) {
    sched_yield();
    last_ns = now_ns();  // the time of others on this core is no gap
    return 0;
  }
  const struct timespec pause = {0, idle <= kYields + kShortSleeps ? kShortSleepNs : kLongSleepNs};
  if (idle > kYields + kShortSleeps) idle = kYields + kShortSleeps;
  nanosleep(&pause, NULL);
  last_ns = now_ns();
  return 0;
}

int MPI_Finalize(void) {
  PMPI_Barrier(MPI_COMM_WORLD);
  atomic_store(&finalizing, 1);
  return PMPI_Finalize();
}

void* ucp_disconnect_nb(void* endpoint) {
  typedef void* (*Disconnect)(void*);
  if (atomic_load(&finalizing)) return NULL;  // complete at once
  const Disconnect disconnect = (Disconnect)next_definition("ucp_disconnect_nb");
  return disconnect(endpoint);
}
