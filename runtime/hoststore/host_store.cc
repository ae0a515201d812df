#include "runtime/hoststore/host_store.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/round_up.h"
#include "runtime/base/status_macros.h"
#include "runtime/hoststore/populate_pages.h"

namespace megatrain {
namespace {

constexpr const char* kPlaneNames[] = {"weights_hi", "weights_lo", "adam_m", "adam_v", "gradients"};

constexpr int kGradientPlane = static_cast<int>(HostStore::Plane::kGradient);

int ElementBytes(int plane, const HostStore::Options& options) {
  const int bytes[] = {sizeof(uint16_t), sizeof(int16_t), sizeof(float), sizeof(float),
                       options.gradient_bytes};
  return bytes[plane];
}

int64_t RoundUpToPage(int64_t bytes) {
  static const int64_t page_bytes = sysconf(_SC_PAGESIZE);
  return RoundUp(bytes, page_bytes);
}

// For each unit the one whose memory it shows.
std::vector<int> ShownUnits(const ModelLayout& layout, int fold_layers) {
  std::vector<int> shown;
  std::vector<int> layers;  // the units of those that have memory
  int layer_count = 0;
  for (int unit = 0; unit < static_cast<int>(layout.units.size()); ++unit) {
    shown.push_back(unit);
    if (fold_layers == 0 || layout.units[unit].kind != UnitKind::kDecoderLayer) {
      continue;
    }
    if (layer_count < fold_layers) {
      layers.push_back(unit);
    }
    shown.back() = layers[layer_count++ % fold_layers];
  }
  return shown;
}

std::vector<PageArena::Part> Parts(const ModelLayout& layout, int plane,
                                   const HostStore::Options& options) {
  const std::vector<int> shown = ShownUnits(layout, options.fold_layers);
  std::vector<bool> has_memory(layout.units.size(), true);
  if (plane == kGradientPlane && !options.gradients.empty()) {
    has_memory.assign(layout.units.size(), false);
    for (size_t unit = 0; unit < layout.units.size(); ++unit) {
      has_memory[shown[unit]] = has_memory[shown[unit]] || options.gradients[unit];
    }
  }
  std::vector<PageArena::Part> parts;
  for (size_t unit = 0; unit < layout.units.size(); ++unit) {
    const int64_t bytes = layout.units[unit].element_count * ElementBytes(plane, options);
    parts.push_back(
        {.size_bytes = has_memory[shown[unit]] ? RoundUpToPage(bytes) : 0, .shows = shown[unit]});
  }
  return parts;
}

int64_t OwnBytes(const std::vector<PageArena::Part>& parts) {
  int64_t total = 0;
  for (size_t unit = 0; unit < parts.size(); ++unit) {
    total += parts[unit].shows == static_cast<int>(unit) ? parts[unit].size_bytes : 0;
  }
  return total;
}

absl::Status CheckFolding(const ModelLayout& layout, int fold_layers) {
  const std::vector<int> shown = ShownUnits(layout, fold_layers);
  for (size_t unit = 0; unit < layout.units.size(); ++unit) {
    if (layout.units[unit].element_count != layout.units[shown[unit]].element_count) {
      return absl::InvalidArgumentError(absl::StrCat("a folded host store: unit ", unit,
                                                     " differs in size from unit ", shown[unit],
                                                     ", whose memory it is to show"));
    }
  }
  return absl::OkStatus();
}

// Another pinner, with its progress told. Once whoever hears of it has asked to end, it refuses.
class TellingPinner final : public PagePinner {
 public:
  TellingPinner(PagePinner& pinner, int64_t all_bytes, const ByteProgress& progress)
      : pinner_(pinner), all_bytes_(all_bytes), progress_(progress) {}

  absl::Status Pin(void* data, int64_t size_bytes) override {
    MT_RETURN_IF_ERROR(stop_);
    MT_RETURN_IF_ERROR(pinner_.Pin(data, size_bytes));
    done_bytes_ += size_bytes;
    stop_ = TellProgress(progress_, done_bytes_, all_bytes_);
    return absl::OkStatus();
  }
  void Unpin(void* data) override { pinner_.Unpin(data); }

  const absl::Status& stop() const { return stop_; }

 private:
  PagePinner& pinner_;
  const int64_t all_bytes_;
  const ByteProgress& progress_;
  int64_t done_bytes_ = 0;
  absl::Status stop_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HostStore>> HostStore::Create(const ModelLayout& layout,
                                                             Options options) {
  MT_CHECK(options.gradient_bytes == 2 || options.gradient_bytes == 4);
  MT_CHECK(options.fold_layers >= 0);
  MT_CHECK(!layout.units.empty());
  MT_CHECK(options.gradients.empty() || options.gradients.size() == layout.units.size());
  MT_RETURN_IF_ERROR(CheckFolding(layout, options.fold_layers));
  const int protection = options.protect_idle_units ? PROT_NONE : PROT_READ | PROT_WRITE;
  auto store =
      std::unique_ptr<HostStore>(new HostStore(static_cast<int>(layout.units.size()), options));
  for (int plane = 0; plane < kPlaneCount; ++plane) {
    auto arena = PageArena::Map(Parts(layout, plane, options), protection);
    if (!arena.ok()) {
      return absl::Status(arena.status().code(),
                          absl::StrCat("host memory for the plane ", kPlaneNames[plane], ": ",
                                       std::string(arena.status().message())));
    }
    store->arenas_[plane] = *std::move(arena);
  }
  return store;
}

std::vector<std::pair<std::string, int64_t>> HostStore::Bytes(const ModelLayout& layout,
                                                              Options options) {
  std::vector<std::pair<std::string, int64_t>> bytes;
  for (int plane = 0; plane < kPlaneCount; ++plane) {
    bytes.emplace_back(kPlaneNames[plane], OwnBytes(Parts(layout, plane, options)));
  }
  return bytes;
}

int64_t HostStore::GradientBytes(const ModelLayout& layout, const Options& options) {
  return OwnBytes(Parts(layout, kGradientPlane, options));
}

HostStore::~HostStore() {
  if (pinner_ != nullptr) {
    pinned_.UnpinAll(*pinner_);
  }
}

void* HostStore::At(Plane plane, int unit) {
  MT_CHECK(unit >= 0 && unit < unit_count());
  MT_CHECK(arena(plane).size_bytes(unit) > 0);
  return arena(plane).data(unit);
}

absl::StatusOr<HostStore::PopulateReport> HostStore::Populate(int threads,
                                                              const ByteProgress& progress) {
  std::vector<PageArena*> arenas;
  std::vector<Access> accesses;
  arenas.reserve(arenas_.size());
  for (const auto& arena : arenas_) {
    arenas.push_back(arena.get());
  }
  accesses.reserve(unit_count());
  {
    MutexLock lock(&mutex_);
    for (int unit = 0; unit < unit_count(); ++unit) {
      accesses.push_back(OpenUnit(unit));  // its pages get memory, and stay zero
    }
  }
  PopulateReport report = {};
  MT_ASSIGN_OR_RETURN(report.size_bytes, PopulatePages(arenas, threads, progress));
  report.huge_page_bytes = PageArena::HugePageBytes(arenas);
  return report;
}

absl::StatusOr<HostStore::PinReport> HostStore::Pin(PagePinner& pinner,
                                                    std::span<const Plane> planes,
                                                    const ByteProgress& progress,
                                                    int64_t chunk_bytes) {
  MT_CHECK(!options_.protect_idle_units && pinner_ == nullptr);
  pinner_ = &pinner;
  PinReport report;
  for (const Plane plane : planes) {
    for (int unit = 0; unit < unit_count(); ++unit) {
      report.requested_bytes += owns(unit) ? arena(plane).size_bytes(unit) : 0;
    }
  }
  TellingPinner telling(pinner, report.requested_bytes, progress);
  for (const Plane plane : planes) {
    if (pin_refusal_.ok()) {
      pin_refusal_ = PinArena(telling, arena(plane), chunk_bytes, pinned_);
    }
  }
  MT_RETURN_IF_ERROR(telling.stop());
  report.pinned_bytes = pinned_.size_bytes();
  report.refusal = pin_refusal_;
  return report;
}

bool HostStore::untouched() {
  MutexLock lock(&mutex_);
  return untouched_;
}

HostStore::Access HostStore::BeginAccess(int unit) {
  MT_CHECK(unit >= 0 && unit < unit_count());
  MutexLock lock(&mutex_);
  untouched_ = false;
  return OpenUnit(unit);
}

HostStore::Access HostStore::OpenUnit(int unit) {
  const int shown = arenas_.front()->shown(unit);
  if (++access_counts_[shown] == 1 && options_.protect_idle_units) {
    SetProtection(shown, PROT_READ | PROT_WRITE);
  }
  return Access(this, shown);
}

void HostStore::EndAccess(int unit) {
  MutexLock lock(&mutex_);
  MT_CHECK(access_counts_[unit] > 0);
  if (--access_counts_[unit] == 0 && options_.protect_idle_units) {
    SetProtection(unit, PROT_NONE);
  }
}

void HostStore::SetProtection(int unit, int protection) {
  for (const auto& arena : arenas_) {
    arena->Protect(unit, protection);
  }
}

}  // namespace megatrain
