// Threads that share the work of one call. Not OpenMP: its threads spin while they wait, and wait
// for every thread at the end of every loop, even one that the machine has not yet let run; where
// other work has the cores, that was measured to be 5 to 20 times slower than this. (torch's
// OpenMP is in the process already, so that its waiting can't be set from here.)

#pragma once
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

class CrossbarThreads {
 public:
  // Runs body(item, thread) for all items, thread < threads; returns when all are done.
  template <class Body>
  static void each(int64_t count, int threads, Body body) {
    CrossbarThreads& all = instance();
    // Called from two threads at once, the second does its work alone.
    if (threads < 2 || count < 2 || !all.call_.try_lock()) {
      for (int64_t i = 0; i < count; ++i) body(i, 0);
      return;
    }
    all.run(count, threads - 1, body);
    all.call_.unlock();
  }

 private:
  // The threads of a process are gone in its forked child, which begins anew.
  static CrossbarThreads& instance() {
    static std::mutex guard;
    static CrossbarThreads* all = nullptr;
    static pid_t owner = 0;
    std::lock_guard<std::mutex> lock(guard);
    if (owner != getpid()) all = new CrossbarThreads, owner = getpid();
    return *all;
  }

  template <class Body>
  void run(int64_t count, int helpers, Body& body) {
    std::atomic<int64_t> next{0};
    const std::function<void(int)> work = [&](int thread) {
      for (int64_t i; (i = next.fetch_add(1)) < count;) body(i, thread);
    };
    {
      std::lock_guard<std::mutex> lock(mutex_);
      for (; started_ < helpers; ++started_) std::thread(&CrossbarThreads::help, this).detach();
      work_ = &work, places_ = helpers, joined_ = 0;
    }
    begin_.notify_all();
    work(0);
    // No item is left to begin. Whoever has not joined by now need not; the others have to end.
    std::unique_lock<std::mutex> lock(mutex_);
    work_ = nullptr;
    end_.wait(lock, [&] { return busy_ == 0; });
  }

  void help() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      begin_.wait(lock, [&] { return work_ && joined_ < places_; });
      const auto* const mine = work_;
      const int thread = ++joined_;
      ++busy_;
      lock.unlock();
      (*mine)(thread);
      lock.lock();
      if (--busy_ == 0) end_.notify_all();
      // Items have run out: this work isn't to be joined again.
      if (work_ == mine) work_ = nullptr;
    }
  }

  std::mutex call_, mutex_;
  std::condition_variable begin_, end_;
  const std::function<void(int)>* work_ = nullptr;
  int started_ = 0, places_ = 0, joined_ = 0, busy_ = 0;
};
