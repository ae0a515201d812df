#ifndef SERVER_FILES_FOLDER_COPY_H_
#define SERVER_FILES_FOLDER_COPY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/byte_progress.h"
#include "runtime/base/file_system.h"

namespace megatrain {

// What a folder of files holds.
struct FolderFacts {
  int64_t size_bytes = 0;
  std::string fingerprint;  // SHA-256 over names and contents of its files, in hex
};

// A file to copy.
struct NamedFile {
  std::string name;  // in the new folder; may lie in a folder there, such as "a/b"
  std::string path;  // no link at its end
};

// Makes the folder `to`, which does not exist, of copies of `files`, all durable but for the name
// of `to` itself. After an error `to` may hold a part: the caller removes it. `progress` hears of
// the bytes, and its error ends it.
absl::StatusOr<FolderFacts> CopyFiles(FileSystem& disk, const std::vector<NamedFile>& files,
                                      const std::string& to, const ByteProgress& progress);

// Every regular file below `folder`, links left out, sorted by name.
absl::StatusOr<std::vector<NamedFile>> ListFiles(const std::string& folder);

// The facts that CopyFiles gave for the folder, if it has not changed.
absl::StatusOr<FolderFacts> DescribeFolder(FileSystem& disk, const std::string& folder);

}  // namespace megatrain

#endif  // SERVER_FILES_FOLDER_COPY_H_
