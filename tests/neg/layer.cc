#include "runtime/base/mutex.h"
#include "runtime/base/virtual_clock.h"

namespace megatrain {

void UseWhatIsNotADependency() {
  Mutex mutex;
  MutexLock lock(&mutex);
}

}  // namespace megatrain
