#include "runtime/benchmark/kernel_time.h"

#include <cupti.h>
#include <cxxabi.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

constexpr size_t kBufferBytes = size_t{8} << 20;

absl::Status CuptiStatus(CUptiResult result, const char* what) {
  if (result == CUPTI_SUCCESS) {
    return absl::OkStatus();
  }
  const char* text = nullptr;
  cuptiGetResultString(result, &text);
  return absl::InternalError(absl::StrCat(what, ": ", text != nullptr ? text : "unknown error"));
}

// A kernel's name without its arguments, which are pages long for templates of templates.
std::string ShortName(const char* mangled) {
  int status = 0;
  char* demangled = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  std::string name = status == 0 ? demangled : mangled;
  std::free(demangled);
  constexpr size_t kLongest = 160;
  if (const size_t end = name.rfind('('); end != std::string::npos && end > 0) {
    name.resize(end);
  }
  return name.size() <= kLongest ? name : name.substr(0, kLongest) + "...";
}

DeviceActivity FromCopy(const CUpti_ActivityMemcpy6& copy) {
  DeviceActivity activity{.kind = DeviceActivity::Kind::kOther,
                          .name = "copy on the device",
                          .start_nanoseconds = static_cast<int64_t>(copy.start),
                          .end_nanoseconds = static_cast<int64_t>(copy.end),
                          .stream = copy.streamId,
                          .size_bytes = static_cast<int64_t>(copy.bytes)};
  if (copy.copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD) {
    activity.kind = DeviceActivity::Kind::kCopyToDevice;
    activity.name = "copy to the device";
  } else if (copy.copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOH) {
    activity.kind = DeviceActivity::Kind::kCopyToHost;
    activity.name = "copy to the host";
  }
  return activity;
}

// What CUPTI's callbacks, which carry no pointer of ours, put their records into.
class Recording {
 public:
  static Recording& Get() {
    static Recording recording;
    return recording;
  }

  std::vector<DeviceActivity> Take() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    return std::exchange(activities_, {});
  }

  static void CUPTIAPI BufferRequested(uint8_t** buffer, size_t* size, size_t* max_records) {
    *size = kBufferBytes;
    *max_records = 0;
    *buffer = static_cast<uint8_t*>(std::aligned_alloc(kRecordAlignment, kBufferBytes));
  }

  static void CUPTIAPI BufferCompleted(CUcontext, uint32_t, uint8_t* buffer, size_t,
                                       size_t valid_size) {
    CUpti_Activity* record = nullptr;
    while (cuptiActivityGetNextRecord(buffer, valid_size, &record) == CUPTI_SUCCESS) {
      Get().Add(*record);
    }
    std::free(buffer);
  }

 private:
  static constexpr size_t kRecordAlignment = 8;

  void Add(const CUpti_Activity& record) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    if (record.kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
      const auto& kernel = reinterpret_cast<const CUpti_ActivityKernel10&>(record);
      activities_.push_back({.kind = DeviceActivity::Kind::kKernel,
                             .name = ShortName(kernel.name),
                             .start_nanoseconds = static_cast<int64_t>(kernel.start),
                             .end_nanoseconds = static_cast<int64_t>(kernel.end),
                             .stream = kernel.streamId});
    } else if (record.kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
      activities_.push_back(FromCopy(reinterpret_cast<const CUpti_ActivityMemcpy6&>(record)));
    } else if (record.kind == CUPTI_ACTIVITY_KIND_MEMSET) {
      const auto& fill = reinterpret_cast<const CUpti_ActivityMemset4&>(record);
      activities_.push_back({.kind = DeviceActivity::Kind::kOther,
                             .name = "fill",
                             .start_nanoseconds = static_cast<int64_t>(fill.start),
                             .end_nanoseconds = static_cast<int64_t>(fill.end),
                             .stream = fill.streamId,
                             .size_bytes = static_cast<int64_t>(fill.bytes)});
    }
  }

  Mutex mutex_;
  std::vector<DeviceActivity> activities_ ABSL_GUARDED_BY(mutex_);
};

constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                         CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET};

class CudaTracer final : public DeviceTracer {
 public:
  absl::Status Start() override {
    MT_RETURN_IF_ERROR(CuptiStatus(
        cuptiActivityRegisterCallbacks(Recording::BufferRequested, Recording::BufferCompleted),
        "cuptiActivityRegisterCallbacks"));
    for (const CUpti_ActivityKind kind : kKinds) {
      MT_RETURN_IF_ERROR(CuptiStatus(cuptiActivityEnable(kind), "cuptiActivityEnable"));
    }
    Recording::Get().Take();
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<DeviceActivity>> Stop() override {
    for (const CUpti_ActivityKind kind : kKinds) {
      MT_RETURN_IF_ERROR(CuptiStatus(cuptiActivityDisable(kind), "cuptiActivityDisable"));
    }
    MT_RETURN_IF_ERROR(CuptiStatus(cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED),
                                   "cuptiActivityFlushAll"));
    return Recording::Get().Take();
  }
};

}  // namespace

std::unique_ptr<DeviceTracer> MakeCudaTracer() { return std::make_unique<CudaTracer>(); }

}  // namespace megatrain
