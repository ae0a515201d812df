#ifndef SERVER_UPLOADS_UPLOAD_STORE_H_
#define SERVER_UPLOADS_UPLOAD_STORE_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "megatrain/v1/dataset.pb.h"
#include "runtime/base/clock.h"
#include "runtime/base/file_system.h"
#include "runtime/base/mutex.h"
#include "server/database/database.h"
#include "server/database/request_key.h"
#include "server/resources/resource_table.h"

namespace megatrain {

// At most this much data in one piece of an upload.
inline constexpr int64_t kMaxUploadPieceBytes = int64_t{1} << 20;

// Files on their way from clients: a row in the database and a file each. `committed_bytes` counts
// what was synced, so it never decreases, whenever the process or the machine dies. Thread-safe;
// calls block on the disk.
class UploadStore {
 public:
  struct Options {
    std::string folder;
    absl::Duration lifetime = absl::Hours(7 * 24);  // of an upload that nobody uses
  };

  // One client's stream into one upload. Not thread-safe. The store outlives it. Its destructor
  // drops what was not committed.
  class Writer {
   public:
    ~Writer();

    // Takes the piece that starts at `offset_bytes`. OUT_OF_RANGE with the right offset as
    // metadata `committed_bytes` when it does not follow the one before; INVALID_ARGUMENT when the
    // data is too long or not what `crc32c` says; RESOURCE_EXHAUSTED when the disk is full. After
    // an error of the disk only Commit can still be called.
    absl::Status Append(int64_t offset_bytes, std::string_view data, uint32_t crc32c);

    // Makes durable what was appended.
    absl::StatusOr<v1::Upload> Commit();

   private:
    friend class UploadStore;
    Writer(UploadStore* store, v1::Upload upload, std::unique_ptr<WritableFile> file);

    UploadStore* const store_;
    v1::Upload upload_;
    std::unique_ptr<WritableFile> file_;
    int64_t written_bytes_;
    absl::Status write_status_;  // the first error of the disk; more may lie behind written_bytes_
  };

  // Drops what expired and what no row knows.
  static absl::StatusOr<std::unique_ptr<UploadStore>> Open(Database& database, FileSystem& disk,
                                                           const Clock& clock, Options options);

  // Announces a file. One with the same content that is finalized is the answer, as it is.
  // RESOURCE_EXHAUSTED when the disk has no room for it.
  absl::StatusOr<v1::Upload> Start(const RequestKey& key, int64_t size_bytes,
                                   const std::string& sha256);

  absl::StatusOr<v1::Upload> Get(const std::string& name);

  // ABORTED while another writer has the upload; FAILED_PRECONDITION when it is finalized.
  absl::StatusOr<std::unique_ptr<Writer>> OpenWriter(const std::string& name);

  // Checks size and sha256 of what is committed; again OK when it is finalized. An upload with
  // another sha256 than announced is dropped: INVALID_ARGUMENT with the reason SHA256_MISMATCH.
  absl::StatusOr<v1::Upload> Finalize(const std::string& name);

  // Where the file of an upload lies; it never changes once the upload is finalized.
  std::string PathOf(const std::string& name) const;

  // Drops the row and the file; OK when there is none.
  absl::Status Remove(const std::string& name);

  // Drops every finalized upload of that content.
  absl::Status RemoveContent(const std::string& sha256);

  // Drops every upload whose time is over and which nobody writes.
  absl::Status RemoveExpired();

 private:
  UploadStore(Database& database, FileSystem& disk, const Clock& clock, Options options);

  // Removes files without a row, which a crash between the two can leave.
  absl::Status RemoveStrays();
  absl::StatusOr<v1::Upload> Insert(Connection& connection, int64_t size_bytes,
                                    const std::string& sha256);
  // Of an upload that `busy_` holds, so that no other writer moves committed_bytes.
  absl::StatusOr<std::unique_ptr<Writer>> MakeWriter(const std::string& name);
  absl::StatusOr<std::unique_ptr<WritableFile>> OpenFile(const v1::Upload& upload);
  absl::StatusOr<std::vector<Numbered<v1::Upload>>> List();
  absl::Status Save(const v1::Upload& upload);
  void EndWriting(const std::string& name);

  Database& database_;
  FileSystem& disk_;
  const Clock& clock_;
  const Options options_;
  Mutex mutex_;
  std::set<std::string> busy_ ABSL_GUARDED_BY(mutex_);  // uploads that have a writer
};

}  // namespace megatrain

#endif  // SERVER_UPLOADS_UPLOAD_STORE_H_
