#ifndef SERVER_DATASETS_DATASET_STORE_H_
#define SERVER_DATASETS_DATASET_STORE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "megatrain/v1/dataset.pb.h"
#include "runtime/base/clock.h"
#include "runtime/base/file_system.h"
#include "runtime/base/mutex.h"
#include "server/database/database.h"
#include "server/database/request_key.h"
#include "server/datasets/data_preparer.h"
#include "server/executor/executor.h"
#include "server/resources/resource_table.h"
#include "server/uploads/upload_store.h"

namespace megatrain {

// Data sets and the tokens made of them: rows in the database, a folder each. A data set is
// checked on the store's own thread; what a crash interrupts goes on at the next start.
// Thread-safe; calls block on the disk.
class DatasetStore {
 public:
  struct Options {
    std::string datasets_folder;  // of data sets, by ID
    std::string prepared_folder;  // of token folders, by fingerprint
    std::string staging_folder;   // for this store alone, on the same disk; emptied at start
  };

  // What it works with; all outlive it.
  struct Parts {
    Database& database;
    FileSystem& disk;
    const Clock& clock;
    UploadStore& uploads;
    DataPreparer& preparer;
  };

  // Removes what failed or was interrupted, and goes on with the checks.
  static absl::StatusOr<std::unique_ptr<DatasetStore>> Open(const Parts& parts, Options options);

  // Ends running checks and waits for them; they go on at the next start.
  ~DatasetStore();

  struct CreateRequest {
    std::string dataset_id;  // an ID by IsResourceId
    std::string upload;      // `uploads/{upload}`
    bool skip_bad_rows = false;
    bool validate_only = false;  // tells what would be made
  };
  // Starts the check of a finalized upload. RESOURCE_EXISTS when the name is taken, but a name
  // whose data set failed can be used again.
  absl::StatusOr<v1::Dataset> Create(const RequestKey& key, const CreateRequest& request);

  absl::StatusOr<v1::Dataset> Get(const std::string& name);

  // Newest first; only those before `before_number`, unless it is 0.
  absl::StatusOr<std::vector<Numbered<v1::Dataset>>> List(int64_t before_number, int64_t limit);

  struct PrepareRequest {
    std::string run_name;  // for DataPreparer::Stop
    std::string dataset;   // `datasets/{dataset}`
    std::string model_path;
    int64_t vocabulary_size = 0;
    int64_t max_sequence_length = 0;
    bool skip_untrained_rows = false;
  };
  // The folder of tokens of a READY data set for one model and its settings: found, or made, which
  // takes long. Errors of the data begin with the data set's name; DATA_LOSS with the reason
  // DATASET_CHANGED when its file, of which they are to be made, is not what was uploaded.
  absl::StatusOr<std::string> Prepare(const PrepareRequest& request);

 private:
  DatasetStore(const Parts& parts, Options options);

  absl::Status RemoveLeftovers();
  absl::Status ResumeChecks();
  absl::StatusOr<v1::Dataset> Describe(Connection& connection, const CreateRequest& request);
  absl::Status TakeFile(const v1::Dataset& dataset, const std::string& upload);
  void Check(const std::string& name);
  absl::Status TryCheck(const std::string& name);
  absl::Status Fail(v1::Dataset dataset, const absl::Status& reason);
  absl::Status Save(v1::Dataset& dataset);
  absl::Status MakeTokens(const v1::Dataset& dataset, const PrepareRequest& request,
                          const std::string& fingerprint, const std::string& path);
  std::string FolderOf(const std::string& name) const;
  std::string DataPathOf(const std::string& name) const;

  const Parts parts_;
  const Options options_;
  Mutex prepare_mutex_;  // one preparation at a time: each takes a processor and memory
  Executor executor_{1};
};

}  // namespace megatrain

#endif  // SERVER_DATASETS_DATASET_STORE_H_
