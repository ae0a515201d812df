#include "absl/base/thread_annotations.h"
#include "runtime/base/mutex.h"

namespace megatrain {

class Guarded {
 public:
  int Get() { return value_; }

 private:
  Mutex mutex_;
  int value_ ABSL_GUARDED_BY(mutex_) = 0;
};

int ReadWithoutLock() {
  Guarded guarded;
  return guarded.Get();
}

}  // namespace megatrain
