#include "comm/comm_thread.h"

#include "comm/wait.h"

namespace triax::comm {

CommThread::~CommThread() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void CommThread::post(Task& task) {
  {
    const std::lock_guard lock(mutex_);
    task.next_ = nullptr;
    if (last_ != nullptr) {
      last_->next_ = &task;
    } else {
      first_ = &task;
    }
    last_ = &task;
  }
  wake_.notify_one();
}

void CommThread::work() {
  set_timer_slack();
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return first_ != nullptr || ending_; });
    if (first_ == nullptr) return;
    Task* task = first_;
    first_ = task->next_;
    if (first_ == nullptr) last_ = nullptr;
    lock.unlock();
    task->run();
    lock.lock();
  }
}

}  // namespace triax::comm
