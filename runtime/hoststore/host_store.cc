#include "runtime/hoststore/host_store.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

constexpr const char* kPlaneNames[] = {"weights_hi", "weights_lo", "adam_m", "adam_v", "gradients"};

int ElementBytes(int plane, const HostStore::Options& options) {
  const int bytes[] = {sizeof(uint16_t), sizeof(int16_t), sizeof(float), sizeof(float),
                       options.gradient_bytes};
  return bytes[plane];
}

int64_t RoundUpToPage(int64_t bytes) {
  static const int64_t page_bytes = sysconf(_SC_PAGESIZE);
  return (bytes + page_bytes - 1) / page_bytes * page_bytes;
}

}  // namespace

HostStore::HostStore(const ModelLayout& layout, Options options)
    : options_(options), access_counts_(layout.units.size(), 0) {
  for (const UnitLayout& unit : layout.units) {
    element_counts_.push_back(unit.element_count);
  }
  for (int plane = 0; plane < kPlaneCount; ++plane) {
    Arena& arena = arenas_[plane];
    arena.element_bytes = ElementBytes(plane, options);
    for (int64_t count : element_counts_) {
      arena.unit_offsets.push_back(arena.size_bytes);
      arena.size_bytes += RoundUpToPage(count * arena.element_bytes);
    }
  }
}

absl::StatusOr<std::unique_ptr<HostStore>> HostStore::Create(const ModelLayout& layout,
                                                             Options options) {
  MT_CHECK(options.gradient_bytes == 2 || options.gradient_bytes == 4);
  MT_CHECK(!layout.units.empty());
  auto store = std::unique_ptr<HostStore>(new HostStore(layout, options));
  for (int plane = 0; plane < kPlaneCount; ++plane) {
    MT_RETURN_IF_ERROR(store->Map(static_cast<Plane>(plane)));
  }
  return store;
}

std::vector<std::pair<std::string, int64_t>> HostStore::Bytes(const ModelLayout& layout,
                                                              Options options) {
  std::vector<std::pair<std::string, int64_t>> bytes;
  for (int plane = 0; plane < kPlaneCount; ++plane) {
    int64_t total = 0;
    for (const UnitLayout& unit : layout.units) {
      total += RoundUpToPage(unit.element_count * ElementBytes(plane, options));
    }
    bytes.emplace_back(kPlaneNames[plane], total);
  }
  return bytes;
}

absl::Status HostStore::Map(Plane plane) {
  Arena& arena = arenas_[plane];
  const int protection = options_.protect_idle_units ? PROT_NONE : PROT_READ | PROT_WRITE;
  void* data = mmap(nullptr, arena.size_bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat("host memory: no room for the plane ",
                                                     kPlaneNames[plane], " of ", arena.size_bytes,
                                                     " bytes: ", std::strerror(errno)));
  }
  arena.data = static_cast<char*>(data);
  // Huge pages are a matter of speed: a kernel without them refuses, and nothing is lost.
  madvise(data, arena.size_bytes, MADV_HUGEPAGE);
  MT_CHECK(madvise(data, arena.size_bytes, MADV_DONTFORK) == 0);
  MT_CHECK(madvise(data, arena.size_bytes, MADV_DONTDUMP) == 0);
  return absl::OkStatus();
}

HostStore::~HostStore() {
  for (const Arena& arena : arenas_) {
    if (arena.data != nullptr) {
      munmap(arena.data, arena.size_bytes);
    }
  }
}

void* HostStore::At(Plane plane, int unit) {
  MT_CHECK(unit >= 0 && unit < unit_count());
  return arenas_[plane].data + arenas_[plane].unit_offsets[unit];
}

HostStore::Access HostStore::BeginAccess(int unit) {
  MT_CHECK(unit >= 0 && unit < unit_count());
  MutexLock lock(&mutex_);
  if (++access_counts_[unit] == 1 && options_.protect_idle_units) {
    SetProtection(unit, PROT_READ | PROT_WRITE);
  }
  return Access(this, unit);
}

void HostStore::EndAccess(int unit) {
  MutexLock lock(&mutex_);
  MT_CHECK(access_counts_[unit] > 0);
  if (--access_counts_[unit] == 0 && options_.protect_idle_units) {
    SetProtection(unit, PROT_NONE);
  }
}

void HostStore::SetProtection(int unit, int protection) {
  for (int plane = 0; plane < kPlaneCount; ++plane) {
    const int64_t bytes = RoundUpToPage(element_counts_[unit] * arenas_[plane].element_bytes);
    MT_CHECK(mprotect(At(static_cast<Plane>(plane), unit), bytes, protection) == 0);
  }
}

}  // namespace megatrain
