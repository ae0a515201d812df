#ifndef SERVER_MODELS_MODEL_STORE_H_
#define SERVER_MODELS_MODEL_STORE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "megatrain/v1/model.pb.h"
#include "runtime/base/byte_progress.h"
#include "runtime/base/clock.h"
#include "runtime/base/file_system.h"
#include "runtime/base/mutex.h"
#include "server/database/database.h"
#include "server/database/request_key.h"
#include "server/executor/executor.h"
#include "server/models/allowed_paths.h"
#include "server/models/model_files.h"
#include "server/resources/resource_table.h"

namespace megatrain {

// Models as Hugging Face folders in versions: a row in the database and a folder each. A version
// that is READY is complete, durable and never changes. Imports are copied on the store's own
// thread; what a crash interrupts goes on at the next start. Thread-safe; calls block on the disk.
class ModelStore {
 public:
  struct Options {
    std::string models_folder;   // of `{model}/versions/{version}`
    std::string staging_folder;  // for this store alone, on the same disk; emptied at start
    std::vector<std::string> allowed_paths;  // where imports come from and exports go
  };

  // What it works with; all outlive it.
  struct Parts {
    Database& database;
    FileSystem& disk;
    const Clock& clock;
  };

  // Removes what was interrupted, and goes on with the imports.
  static absl::StatusOr<std::unique_ptr<ModelStore>> Open(const Parts& parts, Options options);

  // Ends running copies and waits for them; imports go on at the next start.
  ~ModelStore();

  struct ImportRequest {
    std::string model_id;        // an ID by IsResourceId
    std::string path;            // a folder below an allowed one
    bool validate_only = false;  // checks everything, makes nothing
  };
  // Checks the folder and starts its copy as the model's next version. Errors of the model have
  // the reason MODEL_NOT_USABLE; PATH_NOT_ALLOWED; DISK_FULL.
  absl::StatusOr<v1::ModelVersion> Import(const RequestKey& key, const ImportRequest& request);

  // `models/{model}/versions/{version}`, or `models/{model}` for its newest READY version.
  absl::StatusOr<v1::ModelVersion> Get(const std::string& name);

  // Versions of `models/{model}`, or of all when that is empty; newest first; only those before
  // `before_number`, unless it is 0.
  absl::StatusOr<std::vector<Numbered<v1::ModelVersion>>> List(const std::string& model,
                                                               int64_t before_number,
                                                               int64_t limit);

  // Reads all of the version's files. DATA_LOSS with the reason MODEL_CHANGED when they are not
  // what was stored.
  absl::Status CheckUnchanged(const v1::ModelVersion& version);

  // Copies a READY version to a folder that does not exist yet, below an allowed one: complete and
  // durable, or not there. ALREADY_EXISTS when something is there. Gives the version with the new
  // folder, without links, as its path. An error of `progress` ends it.
  absl::StatusOr<v1::ModelVersion> Export(const RequestKey& key, const std::string& name,
                                          const std::string& path,
                                          const ByteProgress& progress = nullptr);

  // The same of other weights of a READY version's shape: `write` makes the complete and durable
  // folder that it is given the path of; `source` is their name, such as a checkpoint's.
  struct OtherWeights {
    std::string name;
    std::function<absl::Status(const std::string& folder)> write;
  };
  absl::StatusOr<v1::ModelVersion> ExportOther(const RequestKey& key, const std::string& version,
                                               const OtherWeights& weights,
                                               const std::string& path);

  // Moves a complete and durable folder of this disk into the store as the next version of
  // `models/{model}`. A second call with the same `source` gives the same version, also after a
  // crash in the first.
  absl::StatusOr<v1::ModelVersion> Publish(const std::string& model, const std::string& folder,
                                           const std::string& source);

 private:
  ModelStore(const Parts& parts, Options options);

  absl::Status FinishInterrupted();
  absl::Status FinishVersion(const v1::ModelVersion& version);
  absl::Status RemoveInterruptedExports();

  // The folder's version as it would be, without a name.
  absl::StatusOr<v1::ModelVersion> Describe(const std::string& folder);
  absl::StatusOr<std::vector<NamedFile>> FilesToImport(const std::string& folder);
  // Gives `version` its name, uid and times and writes its row.
  absl::Status Insert(Connection& connection, const std::string& model, v1::ModelVersion& version);

  // Ends copies when the store is destroyed, and by the error of `progress`.
  ByteProgress UntilStop(const ByteProgress& progress = nullptr);
  void Copy(const std::string& name);
  absl::Status TryCopy(const std::string& name);
  absl::Status CopyToStaging(v1::ModelVersion& version, const std::string& staging);
  absl::Status MoveIntoPlace(const std::string& folder, const v1::ModelVersion& version);
  // Where an export to `path` would lie, if it can.
  absl::StatusOr<std::string> ResolveTarget(const std::string& path, int64_t size_bytes);
  absl::Status CopyOut(const v1::ModelVersion& version, const std::string& staging,
                       const ByteProgress& progress);
  // An export whose files `write` makes in a folder beside the target.
  absl::StatusOr<v1::ModelVersion> ExportBy(
      const RequestKey& key, v1::ModelVersion version, const std::string& path,
      const std::function<absl::Status(const std::string& folder)>& write);

  absl::StatusOr<v1::ModelVersion> FindBySource(const std::string& model,
                                                const std::string& source);
  absl::Status Save(v1::ModelVersion& version);
  absl::Status Delete(const std::string& name);

  const Parts parts_;
  const Options options_;
  const AllowedPaths allowed_paths_;
  Mutex publish_mutex_;
  std::atomic<bool> stop_ = false;
  Executor executor_{1};
};

}  // namespace megatrain

#endif  // SERVER_MODELS_MODEL_STORE_H_
