// How long an OpenMP thread that waits for the others looks again and again before it gives its core away.
#pragma once

namespace triax::apps {

/// Looks of a waiting thread, 5 to 10 us. libgomp's own default, 300,000, keeps a core for milliseconds: on a machine
/// with one other busy process the thread that lost its core then shares it with that process while the waiting one
/// does nothing on the other, and a step of two threads takes 3 times as long (docs/performance.md).
inline constexpr const char* kWaitLooks = "2000";

/// Runs this program anew, as the same process, with GOMP_SPINCOUNT = kWaitLooks: libgomp reads it only when it is
/// loaded. Returns where there is nothing to do: GOMP_SPINCOUNT or OMP_WAIT_POLICY is set, OMP_NUM_THREADS is 1,
/// the process is traced, or its file cannot be run.
void run_with_short_waits(char** argv);

}  // namespace triax::apps
