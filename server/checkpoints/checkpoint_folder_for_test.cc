#include "server/checkpoints/checkpoint_folder_for_test.h"

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "runtime/base/crc32c.h"
#include "runtime/checkpoint/checkpoint_folder.h"

namespace megatrain {

std::string MakeCheckpointFolder(const std::string& folder, const FolderForTest& options) {
  CheckpointManifest manifest;
  manifest.progress.step = options.step;
  manifest.progress.update_count = options.step;
  if (options.loss.has_value()) {
    manifest.progress.last_evaluation = EvaluationMark{options.step, *options.loss};
    manifest.progress.best_evaluation = manifest.progress.last_evaluation;
  }
  manifest.order.model_fingerprint = std::string(64, 'a');
  manifest.order.data_fingerprint = std::string(64, 'b');
  manifest.order.batch_rows = 1;
  manifest.order.micro_batch_rows = 1;
  manifest.order.max_sequence_length = 8;
  manifest.trigger = options.trigger;
  manifest.create_time = absl::FromUnixSeconds(options.create_seconds + options.step);
  manifest.schedule.total_steps = options.step + 1;
  manifest.unit_elements = {8};
  const auto describe = [](const std::string& name, const std::string& content) {
    const uint32_t crc = Crc32c(content);
    return CheckpointFile{name, static_cast<int64_t>(content.size()), crc, {crc}};
  };
  const std::string log = SerializeTrainingLog(options.log);
  if (!log.empty()) {
    manifest.files.push_back(describe(kTrainingLogName, log));
  }
  manifest.files.push_back(describe("weights_hi.bin", options.content));
  const std::string id = CheckpointId(options.step);
  const std::string path = absl::StrCat(folder, "/", id);
  std::filesystem::create_directories(path);
  if (!log.empty()) {
    std::ofstream(path + "/" + kTrainingLogName, std::ios::binary) << log;
  }
  std::ofstream(path + "/weights_hi.bin") << options.content;
  std::ofstream(path + "/" + kManifestName) << SerializeManifest(manifest);
  return id;
}

}  // namespace megatrain
