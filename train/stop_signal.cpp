#include "train/stop_signal.h"

namespace triax::train {
namespace {

// A signal handler can reach nothing but static storage.
volatile std::sig_atomic_t last_signal = 0;

void remember(int signal) { last_signal = signal; }

}  // namespace

StopSignal::StopSignal() {
  last_signal = 0;
  struct sigaction action {};
  action.sa_handler = remember;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, &action, &old_term_);
  sigaction(SIGUSR1, &action, &old_usr1_);
}

StopSignal::~StopSignal() {
  sigaction(SIGTERM, &old_term_, nullptr);
  sigaction(SIGUSR1, &old_usr1_, nullptr);
}

int StopSignal::received() const { return last_signal; }

}  // namespace triax::train
