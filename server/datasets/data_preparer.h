#ifndef SERVER_DATASETS_DATA_PREPARER_H_
#define SERVER_DATASETS_DATA_PREPARER_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"
#include "runtime/base/clock.h"
#include "runtime/base/mutex.h"
#include "server/datasets/helper_process.h"

namespace megatrain {

// Runs the helper program that reads what strangers wrote: rows, tokenizers, chat templates. Each
// run is a process of its own with limits. Thread-safe; calls block until the helper ends.
class DataPreparer {
 public:
  struct Options {
    std::string python = "/usr/bin/python3";
    std::string archive;      // the helper's modules, see server/datasets/prepare
    std::string python_path;  // the folder of wheels
    int64_t max_row_bytes = int64_t{1} << 20;
    int64_t memory_limit_bytes = int64_t{4} << 30;
    int64_t file_limit_bytes = int64_t{1} << 40;
    absl::Duration time_limit = absl::Hours(6);  // also of CPU time
  };

  // What a check found.
  struct CheckResult {
    int64_t row_count = 0;
    int64_t skipped_row_count = 0;
  };

  // What is made of a data set for one model.
  struct TokenizeRequest {
    std::string run_name;   // for Stop; empty: cannot be stopped alone
    std::string data_path;  // JSONL
    bool skip_bad_rows = false;
    bool skip_untrained_rows = false;
    std::string model_path;  // a Hugging Face folder
    int64_t vocabulary_size = 0;
    int64_t max_sequence_length = 0;
    absl::Time template_time;  // what strftime_now tells the chat template
    std::string fingerprint;
    std::string staging_path;  // does not exist; on the disk of output_path
    std::string output_path;   // does not exist
  };

  DataPreparer(const Clock& clock, Options options) : clock_(clock), options_(std::move(options)) {}

  // Reads every row. INVALID_ARGUMENT with the line and the reason when the file cannot be used.
  absl::StatusOr<CheckResult> Check(const std::string& data_path, bool skip_bad_rows);

  // Writes the folder of tokens. Errors as Check; CANCELLED after Stop. What an error leaves in
  // `staging_path` the caller removes.
  absl::Status Tokenize(const TokenizeRequest& request);

  // Ends the runs of that name, which return CANCELLED.
  void Stop(const std::string& run_name);

  // Ends all runs, now and later ones.
  void StopAll();

 private:
  absl::StatusOr<nlohmann::json> Run(const std::string& run_name, const std::string& mode,
                                     const std::vector<std::string>& arguments);
  HelperProcess::Command MakeCommand(const std::string& mode,
                                     const std::vector<std::string>& arguments) const;
  absl::Status DeathOf(const HelperProcess::Outcome& outcome) const;

  const Clock& clock_;
  const Options options_;
  Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::multimap<std::string, HelperProcess*> running_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace megatrain

#endif  // SERVER_DATASETS_DATA_PREPARER_H_
