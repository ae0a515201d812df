// Checkpoints on a real disk: written, damaged, interrupted, read.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/faulty_file_system.h"
#include "runtime/base/memory_folder_for_test.h"
#include "runtime/base/posix_file_system.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/load_checkpoint.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/state_files.h"
#include "runtime/checkpoint/training_log.h"
#include "runtime/checkpoint/verify_checkpoint.h"
#include "runtime/checkpoint/write_checkpoint.h"
#include "runtime/config/model_layout.h"
#include "runtime/hoststore/host_store.h"

namespace megatrain {
namespace {

ModelLayout MakeLayout(const std::vector<int64_t>& unit_elements) {
  ModelLayout layout{.units = {}, .tied = true};
  for (const int64_t elements : unit_elements) {
    layout.units.push_back({UnitKind::kDecoderLayer, -1, {}, elements});
  }
  return layout;
}

// Everything that a store holds, in one text.
std::string Contents(HostStore& store, const ModelLayout& layout) {
  std::string text;
  for (const StateFile& file : kStateFiles) {
    const std::vector<int64_t> elements = UnitElements(layout);
    EXPECT_TRUE(ForEachPiece(file, store, elements, 0, StateFileBytes(file, elements),
                             [&](std::span<char> piece) {
                               text.append(piece.data(), piece.size());
                               return absl::OkStatus();
                             })
                    .ok());
  }
  return text;
}

class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest() : CheckpointTest(testing::TempDir() + "/checkpoints") {}
  explicit CheckpointTest(const std::string& folder) : folder_(folder) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    store_ = MakeStore();
  }

  // Pages of a unit that nobody uses cannot be read: a save that looks where it must not crashes.
  std::unique_ptr<HostStore> MakeStore() {
    return *HostStore::Create(layout_, {.gradient_bytes = 4, .protect_idle_units = true});
  }

  void Fill(uint32_t seed) {
    std::mt19937 random(seed);
    for (size_t i = 0; i < layout_.units.size(); ++i) {
      const int unit = static_cast<int>(i);
      const HostStore::Access access = store_->BeginAccess(unit);
      for (int64_t e = 0; e < layout_.units[i].element_count; ++e) {
        store_->hi(unit)[e] = static_cast<uint16_t>(random());
        store_->lo(unit)[e] = static_cast<int16_t>(random());
        store_->moment1(unit)[e] = static_cast<float>(random());
        store_->moment2(unit)[e] = static_cast<float>(random());
      }
    }
  }

  CheckpointManifest ManifestOf(int64_t step) {
    CheckpointManifest manifest;
    manifest.progress = {.step = step, .update_count = step - 1};
    manifest.order = {.seed = 1, .batch_rows = 8, .micro_batch_rows = 8, .max_sequence_length = 64};
    manifest.unit_elements = UnitElements(layout_);
    manifest.spec = "spec";
    return manifest;
  }

  absl::StatusOr<WrittenCheckpoint> Save(int64_t step, FileSystem& files) {
    return WriteCheckpoint(*store_, ManifestOf(step), folder_, files, log_);
  }

  // The state of each step that is there and can be loaded.
  std::vector<std::pair<int64_t, std::string>> LoadAll() {
    std::vector<std::pair<int64_t, std::string>> states;
    const auto listing = ListCheckpoints(folder_, posix_);
    EXPECT_TRUE(listing.ok()) << listing.status();
    for (const Checkpoint& checkpoint : listing->valid) {
      const auto store = MakeStore();
      const absl::Status loaded =
          LoadCheckpoint(checkpoint, LoadedState::kEverything, layout_, *store, posix_);
      EXPECT_TRUE(loaded.ok()) << loaded;
      states.emplace_back(checkpoint.manifest.progress.step, Contents(*store, layout_));
    }
    return states;
  }

  bool HasTemporaries() {
    const std::vector<std::string> names = *posix_.ListFolder(folder_);
    return std::any_of(names.begin(), names.end(),
                       [](const std::string& name) { return name.starts_with(kTemporaryPrefix); });
  }

  ModelLayout layout_ = MakeLayout({192, 1088, 64});
  TrainingLog log_ = {{.step = 1, .loss = 2.5, .gradient_norm = 0.5, .learning_rate = 1e-3}};
  const std::string folder_;
  PosixFileSystem posix_;
  std::unique_ptr<HostStore> store_;
};

TEST_F(CheckpointTest, ComesBackWithItsBits) {
  Fill(1);
  const auto written = Save(120, posix_);
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(written->checkpoint.id, "step-00000120");
  EXPECT_FALSE(HasTemporaries());

  const auto opened = OpenCheckpoint(folder_ + "/step-00000120", posix_);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->manifest.progress, ManifestOf(120).progress);
  EXPECT_EQ(opened->manifest.spec, "spec");
  EXPECT_EQ(opened->SizeBytes(), written->checkpoint.SizeBytes());
  EXPECT_TRUE(VerifyCheckpoint(*opened, 2, posix_).ok());
  const std::string contents = Contents(*store_, layout_);
  ASSERT_EQ(LoadAll().size(), 1u);
  EXPECT_EQ(LoadAll()[0].second, contents);

  int64_t on_disk = 0;
  for (const auto& entry : std::filesystem::directory_iterator(opened->path)) {
    on_disk += static_cast<int64_t>(entry.file_size());
  }
  EXPECT_EQ(on_disk, opened->SizeBytes());
  EXPECT_LE(on_disk, CheckpointBytesOnDisk(UnitElements(layout_)));
}

TEST_F(CheckpointTest, TheLogComesBackWithItsBitsAndIsBounded) {
  Fill(1);
  log_.clear();
  const auto without = Save(1, posix_);
  ASSERT_TRUE(without.ok());
  EXPECT_TRUE(ReadTrainingLog(without->checkpoint, posix_)->empty());
  for (int64_t step = 1; step <= kMaxLogEntries + 2; ++step) {
    AddToLog({.kind = LogEntry::Kind::kSkippedStep,
              .step = step,
              .loss = std::nan(""),
              .gradient_norm = 1.0 / static_cast<double>(step),
              .learning_rate = 0.1,
              .token_count = 7,
              .loss_token_count = 5},
             log_);
  }
  const auto written = Save(kMaxLogEntries + 2, posix_);
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_LE(written->checkpoint.SizeBytes(), CheckpointBytesOnDisk(UnitElements(layout_)));
  const auto log = ReadTrainingLog(written->checkpoint, posix_);
  ASSERT_TRUE(log.ok()) << log.status();
  ASSERT_EQ(static_cast<int64_t>(log->size()), kMaxLogEntries);
  EXPECT_EQ(log->front().step, 3) << "the newest are kept";
  EXPECT_EQ(SerializeTrainingLog(*log), SerializeTrainingLog(log_));
  ASSERT_EQ(LoadAll().size(), 2u);

  std::ofstream(written->checkpoint.path + "/" + kTrainingLogName) << "short";
  EXPECT_TRUE(absl::IsDataLoss(ReadTrainingLog(written->checkpoint, posix_).status()));
}

// R13: whatever the store held before.
TEST_F(CheckpointTest, WeightsAloneComeWithMomentsOfZero) {
  Fill(1);
  ASSERT_TRUE(Save(5, posix_).ok());
  const std::string saved = Contents(*store_, layout_);
  Fill(2);
  const auto opened = OpenCheckpoint(folder_ + "/step-00000005", posix_);
  ASSERT_TRUE(opened.ok());
  ASSERT_TRUE(LoadCheckpoint(*opened, LoadedState::kWeights, layout_, *store_, posix_).ok());
  const std::string loaded = Contents(*store_, layout_);
  const size_t moments = 2 * StateFileBytes(kStateFiles[0], UnitElements(layout_));
  EXPECT_EQ(loaded.substr(moments), saved.substr(moments));
  EXPECT_EQ(loaded.substr(0, moments), std::string(moments, '\0'));
}

// Planes of several chunks, divided among threads, with units that cross chunks' borders.
TEST_F(CheckpointTest, ManyChunksAndThreads) {
  const ModelLayout layout = MakeLayout({3'000'000, 64, 5'000'064, 7'777'728});
  auto store = *HostStore::Create(layout, {});
  std::mt19937 random(3);
  for (int unit = 0; unit < 4; ++unit) {
    for (int64_t e = 0; e < layout.units[unit].element_count; ++e) {
      store->moment1(unit)[e] = static_cast<float>(random());
      store->hi(unit)[e] = static_cast<uint16_t>(random());
    }
  }
  CheckpointManifest manifest = ManifestOf(7);
  manifest.unit_elements = UnitElements(layout);
  const auto written = WriteCheckpoint(*store, manifest, folder_, posix_);
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(written->checkpoint.manifest.files[0].chunk_crc32c.size(), 4u);
  auto loaded = *HostStore::Create(layout, {});
  ASSERT_TRUE(
      LoadCheckpoint(written->checkpoint, LoadedState::kEverything, layout, *loaded, posix_).ok());
  EXPECT_TRUE(Contents(*loaded, layout) == Contents(*store, layout));

  // The checksum of a whole file is that of its bytes.
  const CheckpointFile& file = written->checkpoint.manifest.files[2];
  const std::string path = written->checkpoint.path + "/" + file.name;
  EXPECT_EQ(Crc32c(*posix_.ReadFile(path, file.size_bytes)), file.crc32c);

  // Damage is located.
  std::fstream damaged(written->checkpoint.path + "/adam_v.bin",
                       std::ios::binary | std::ios::in | std::ios::out);
  damaged.seekp(2 * kCheckpointChunkBytes + 5);
  damaged.put('x');
  damaged.close();
  for (const absl::Status& status :
       {VerifyCheckpoint(written->checkpoint, 3, posix_),
        LoadCheckpoint(written->checkpoint, LoadedState::kEverything, layout, *loaded, posix_)}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_NE(status.message().find("adam_v.bin: bytes 33554432 to 50331647 are damaged"),
              absl::string_view::npos)
        << status;
  }
  EXPECT_TRUE(
      LoadCheckpoint(written->checkpoint, LoadedState::kWeights, layout, *loaded, posix_).ok());
}

TEST_F(CheckpointTest, AModelOfAnotherShapeIsRefused) {
  Fill(1);
  const auto written = Save(5, posix_);
  ASSERT_TRUE(written.ok());
  const ModelLayout other = MakeLayout({192, 64, 1088});
  const auto store = *HostStore::Create(other, {});
  EXPECT_EQ(
      LoadCheckpoint(written->checkpoint, LoadedState::kEverything, other, *store, posix_).code(),
      absl::StatusCode::kFailedPrecondition);
}

TEST_F(CheckpointTest, OneOfTheSameNameIsReplaced) {
  Fill(1);
  ASSERT_TRUE(Save(5, posix_).ok());
  Fill(2);
  ASSERT_TRUE(Save(5, posix_).ok());
  EXPECT_FALSE(HasTemporaries());
  ASSERT_EQ(LoadAll().size(), 1u);
  EXPECT_EQ(LoadAll()[0].second, Contents(*store_, layout_));
}

TEST_F(CheckpointTest, OnlyCompleteFoldersExist) {
  Fill(1);
  ASSERT_TRUE(Save(9, posix_).ok());
  ASSERT_TRUE(Save(100'000'000, posix_).ok());
  ASSERT_TRUE(Save(20, posix_).ok());
  std::filesystem::create_directory(folder_ + "/step-00000010");
  std::filesystem::create_directory(folder_ + "/tmp-step-00000011");
  std::filesystem::copy(folder_ + "/step-00000009", folder_ + "/step-00000012");
  std::filesystem::copy(folder_ + "/step-00000009", folder_ + "/step-9");
  std::ofstream(folder_ + "/step-00000020/more") << "x";
  const auto listing = ListCheckpoints(folder_, posix_);
  ASSERT_TRUE(listing.ok());
  ASSERT_EQ(listing->valid.size(), 2u);
  EXPECT_EQ(listing->valid[0].id, "step-00000009");
  EXPECT_EQ(listing->valid[1].id, "step-100000000");
  ASSERT_EQ(listing->invalid.size(), 3u);
  EXPECT_EQ(listing->invalid[0].id, "step-00000010");
  EXPECT_EQ(listing->invalid[1].id, "step-00000012");
  EXPECT_EQ(listing->invalid[2].id, "step-00000020");
  std::filesystem::resize_file(folder_ + "/step-00000009/adam_v.bin", 100);
  EXPECT_EQ(ListCheckpoints(folder_, posix_)->valid.size(), 1u);
  EXPECT_TRUE(absl::IsNotFound(ListCheckpoints(folder_ + "/none", posix_).status()));
}

TEST_F(CheckpointTest, AFullDiskIsSeenBeforeAnythingIsWritten) {
  Fill(1);
  FaultyFileSystem disk(&posix_);
  disk.FillAfter(1000);
  const absl::Status status = Save(5, disk).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_NE(status.message().find("1000 available"), absl::string_view::npos) << status;
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

// In memory: what fails is the faulty file system, or a byte.
class CheckpointFaultTest : private MemoryFolder, public CheckpointTest {
 protected:
  using Fault = FaultyFileSystem::Fault;

  CheckpointFaultTest() : CheckpointTest(path()) {}

  std::string SaveAnew(int64_t step, uint32_t seed) {
    Fill(seed);
    EXPECT_TRUE(disk_.RemoveTree(folder_ + "/" + CheckpointId(step)).ok());
    EXPECT_TRUE(Save(step, disk_).ok());
    return Contents(*store_, layout_);
  }

  // Saves `step` anew, meeting the fault at `operation`, over the checkpoint of step 60, which is
  // `before`. Whether that operation was one of the save's.
  bool CheckSaveWithFault(int64_t step, int64_t operation, Fault fault, const std::string& before) {
    disk_.FailAt(operation, fault);
    const absl::Status status = Save(step, disk_).status();
    const bool was_met = disk_.operation_count() > operation;
    disk_.Repair();
    const bool left_nothing = !HasTemporaries();
    EXPECT_TRUE(CleanCheckpointFolder(folder_, posix_).ok());
    EXPECT_FALSE(HasTemporaries());
    const std::string after = Contents(*store_, layout_);
    const auto states = LoadAll();
    EXPECT_FALSE(states.empty());
    for (const auto& [saved_step, content] : states) {
      const bool is_new = saved_step == step && content == after;
      EXPECT_TRUE(is_new || (saved_step == 60 && content == before)) << saved_step << status;
      EXPECT_FALSE(is_new && !status.ok() && (fault == Fault::kFull || fault == Fault::kOnce));
      EXPECT_FALSE(!is_new && status.ok() && saved_step == step);
    }
    if (fault == Fault::kFull || fault == Fault::kOnce) {
      EXPECT_TRUE(status.ok() || left_nothing) << status;
    }
    return was_met;
  }

  FaultyFileSystem disk_{&posix_};
};

// R14, R15: after every fault at every operation of a save the checkpoint before is there, whole,
// also when it is the one that is replaced, and of the one that failed all or nothing: nothing at
// all where the disk still lets it be removed.
TEST_F(CheckpointFaultTest, EveryOperationOfASaveCanFail) {
  for (const int64_t step : {60, 120}) {
    for (const Fault fault : {Fault::kFull, Fault::kBroken, Fault::kCrash, Fault::kOnce}) {
      int64_t operation = 0;
      for (bool was_met = true; was_met && !HasFailure(); ++operation) {
        SCOPED_TRACE(testing::Message()
                     << step << " " << static_cast<int>(fault) << " " << operation);
        ASSERT_TRUE(disk_.RemoveTree(folder_ + "/step-00000120").ok());
        const std::string before = SaveAnew(60, 1);
        Fill(2);
        was_met = CheckSaveWithFault(step, operation, fault, before);
      }
      EXPECT_GE(operation, 4 * 4);
    }
  }
}

// The same for a disk that is full, or a process that dies, after any number of bytes.
TEST_F(CheckpointFaultTest, ASaveCanEndAfterAnyByte) {
  Fill(1);
  ASSERT_TRUE(Save(60, posix_).ok());
  const std::string before = Contents(*store_, layout_);
  Fill(2);
  FaultyFileSystem disk(&posix_);
  const int64_t total = CheckpointBytesOnDisk(UnitElements(layout_));
  bool complete = false;
  for (int64_t bytes = 0; !complete && bytes < total; bytes += 331) {
    for (const bool dies : {false, true}) {
      disk.Repair();
      if (dies) {
        disk.CrashAfter(bytes);
      } else {
        disk.FillAfter(bytes, /*announced=*/false);
      }
      const absl::Status status = Save(120, disk).status();
      const auto states = LoadAll();
      ASSERT_FALSE(states.empty()) << bytes;
      EXPECT_EQ(states[0], std::pair(int64_t{60}, before)) << bytes;
      EXPECT_EQ(states.size(), status.ok() ? 2u : 1u) << bytes << " " << status;
      EXPECT_TRUE(dies || !HasTemporaries()) << bytes << " " << status;
      complete = status.ok();
    }
  }
  EXPECT_TRUE(complete);
}

// Every byte of a checkpoint is covered, and who looks for one is offered the one before.
TEST_F(CheckpointFaultTest, EveryByteIsCorruptedInTurn) {
  layout_ = MakeLayout({192});
  store_ = MakeStore();
  Fill(1);
  ASSERT_TRUE(Save(60, posix_).ok());
  const auto written = Save(120, posix_);
  ASSERT_TRUE(written.ok());
  for (const auto& entry : std::filesystem::directory_iterator(written->checkpoint.path)) {
    const int file = open(entry.path().c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_GE(file, 0);
    const bool is_manifest = entry.path().filename() == kManifestName;
    for (int64_t at = 0; at < static_cast<int64_t>(entry.file_size()); ++at) {
      char byte = 0;
      ASSERT_EQ(pread(file, &byte, 1, at), 1);
      const char flipped = static_cast<char>(byte ^ (1 << at % 8));
      ASSERT_EQ(pwrite(file, &flipped, 1, at), 1);
      const auto opened = OpenCheckpoint(written->checkpoint.path, posix_);
      EXPECT_EQ(opened.ok(), !is_manifest) << entry.path() << " " << at;
      const absl::Status status =
          opened.ok() ? VerifyCheckpoint(*opened, 1, posix_) : opened.status();
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << entry.path() << " " << at;
      if (opened.ok() && at % 61 == 0) {  // who loads it without that finds it too
        absl::Status loaded =
            LoadCheckpoint(*opened, LoadedState::kEverything, layout_, *store_, posix_);
        loaded.Update(ReadTrainingLog(*opened, posix_).status());
        EXPECT_EQ(loaded.code(), absl::StatusCode::kDataLoss) << entry.path() << " " << at;
      }
      ASSERT_EQ(pwrite(file, &byte, 1, at), 1);
      if (HasFailure()) {
        break;
      }
    }
    close(file);
  }
  EXPECT_TRUE(VerifyCheckpoint(*OpenCheckpoint(written->checkpoint.path, posix_), 1, posix_).ok());
}

}  // namespace
}  // namespace megatrain
