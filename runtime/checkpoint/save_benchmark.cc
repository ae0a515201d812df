// Prints, as one line of JSON, how fast a checkpoint is written, checked and loaded, beside the
// disk's own speed for the same number of bytes past the page cache:
//   save_benchmark FOLDER GIGABYTES
// The folder is on the disk to be measured and needs room for two such checkpoints.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/posix_file_system.h"
#include "runtime/base/status_macros.h"
#include "runtime/checkpoint/load_checkpoint.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/state_files.h"
#include "runtime/checkpoint/verify_checkpoint.h"
#include "runtime/checkpoint/write_checkpoint.h"
#include "runtime/config/model_layout.h"
#include "runtime/hoststore/host_store.h"

namespace megatrain {
namespace {

constexpr int kUnits = 16;
constexpr int64_t kStateBytesPerElement = 12;

ModelLayout MakeLayout(int64_t state_bytes) {
  ModelLayout layout{.units = {}, .tied = true};
  const int64_t elements = state_bytes / kStateBytesPerElement / kUnits / 4096 * 4096;
  for (int unit = 0; unit < kUnits; ++unit) {
    layout.units.push_back({UnitKind::kDecoderLayer, unit, {}, std::max<int64_t>(elements, 4096)});
  }
  return layout;
}

// With bytes that no disk can shorten.
void Fill(HostStore& store, const ModelLayout& layout) {
  const std::vector<int64_t> elements = UnitElements(layout);
  for (const StateFile& file : kStateFiles) {
    std::mt19937_64 random(1);
    const absl::Status status = ForEachPiece(
        file, store, elements, 0, StateFileBytes(file, elements), [&](std::span<char> piece) {
          auto* words = reinterpret_cast<uint64_t*>(piece.data());
          std::generate(words, words + piece.size() / sizeof(uint64_t), [&] { return random(); });
          return absl::OkStatus();
        });
    MT_CHECK(status.ok());
  }
}

// The disk's own speed: one file, written from memory in chunks by so many threads.
absl::StatusOr<double> DiskSeconds(const std::string& path, HostStore& store,
                                   const ModelLayout& layout, int threads, const Clock& clock) {
  PosixFileSystem files;
  const std::vector<int64_t> elements = UnitElements(layout);
  const int64_t unit_bytes = elements[0] * 4;
  const int64_t total = StateBytes(elements) / unit_bytes * unit_bytes;
  const absl::Duration start = clock.MonotonicNow();
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<BlockFile> file, files.OpenForBlocks(path, total));
  std::vector<absl::Status> results(threads);
  {
    std::vector<std::jthread> writers;
    for (int thread = 0; thread < threads; ++thread) {
      writers.emplace_back([&, thread] {
        for (int64_t at = thread * kCheckpointChunkBytes; at < total && results[thread].ok();
             at += threads * kCheckpointChunkBytes) {
          const int unit = static_cast<int>(at / unit_bytes % kUnits);
          const int64_t offset = at % unit_bytes;
          const int64_t size = std::min(kCheckpointChunkBytes, unit_bytes - offset);
          const char* memory = reinterpret_cast<const char*>(store.moment1(unit)) + offset;
          results[thread] = file->WriteAt(at, {memory, static_cast<size_t>(size)});
        }
      });
    }
  }
  for (const absl::Status& result : results) {
    MT_RETURN_IF_ERROR(result);
  }
  MT_RETURN_IF_ERROR(file->Sync());
  const double seconds = absl::ToDoubleSeconds(clock.MonotonicNow() - start);
  MT_RETURN_IF_ERROR(files.RemoveTree(path));
  return seconds;
}

struct Seconds {
  double disk_one_thread;
  double disk_threads;
  double save;
  double verify;
  double load;
  bool direct;
};

absl::StatusOr<Seconds> Measure(const std::string& folder, HostStore& store,
                                const ModelLayout& layout) {
  PosixFileSystem files;
  SystemClock clock;
  Seconds seconds = {};
  absl::Duration start;
  const auto lap = [&] {
    const absl::Duration before = std::exchange(start, clock.MonotonicNow());
    return absl::ToDoubleSeconds(start - before);
  };
  MT_RETURN_IF_ERROR(files.MakeFolders(folder));
  const std::string plain = absl::StrCat(folder, "/plain");
  MT_ASSIGN_OR_RETURN(seconds.disk_one_thread, DiskSeconds(plain, store, layout, 1, clock));
  MT_ASSIGN_OR_RETURN(seconds.disk_threads,
                      DiskSeconds(plain, store, layout, kCheckpointThreads, clock));
  CheckpointManifest manifest{
      .progress = {.step = 1},
      .order = {.batch_rows = 1, .micro_batch_rows = 1, .max_sequence_length = 1},
      .unit_elements = UnitElements(layout)};
  lap();
  MT_ASSIGN_OR_RETURN(const WrittenCheckpoint written,
                      WriteCheckpoint(store, manifest, folder, files));
  seconds.save = lap();
  seconds.direct = written.direct;
  MT_RETURN_IF_ERROR(VerifyCheckpoint(written.checkpoint, kCheckpointThreads, files));
  seconds.verify = lap();
  MT_RETURN_IF_ERROR(
      LoadCheckpoint(written.checkpoint, LoadedState::kEverything, layout, store, files));
  seconds.load = lap();
  MT_RETURN_IF_ERROR(files.RemoveTree(written.checkpoint.path));
  return seconds;
}

int Main(int argc, char** argv) {
  double gigabytes = 0;
  if (argc != 3 || !absl::SimpleAtod(argv[2], &gigabytes) || gigabytes <= 0) {
    std::fprintf(stderr, "usage: save_benchmark FOLDER GIGABYTES\n");
    return 1;
  }
  const ModelLayout layout = MakeLayout(static_cast<int64_t>(gigabytes * 1e9));
  const auto store = HostStore::Create(layout, {});
  if (!store.ok()) {
    std::fprintf(stderr, "%s\n", store.status().ToString().c_str());
    return 1;
  }
  Fill(**store, layout);
  const absl::StatusOr<Seconds> seconds = Measure(argv[1], **store, layout);
  if (!seconds.ok()) {
    std::fprintf(stderr, "%s\n", seconds.status().ToString().c_str());
    return 1;
  }
  const double bytes = static_cast<double>(StateBytes(UnitElements(layout)));
  const auto speed = [&](double time) { return bytes / time / 1e9; };
  const double disk = std::max(speed(seconds->disk_one_thread), speed(seconds->disk_threads));
  std::printf(
      "{\"bytes\": %.0f, \"direct\": %s, \"disk_gb_s\": %.3f, \"disk_one_thread_gb_s\": %.3f, "
      "\"save_gb_s\": %.3f, \"save_part_of_disk\": %.3f, \"verify_gb_s\": %.3f, "
      "\"load_gb_s\": %.3f}\n",
      bytes, seconds->direct ? "true" : "false", disk, speed(seconds->disk_one_thread),
      speed(seconds->save), speed(seconds->save) / disk, speed(seconds->verify),
      speed(seconds->load));
  return 0;
}

}  // namespace
}  // namespace megatrain

int main(int argc, char** argv) { return megatrain::Main(argc, argv); }
