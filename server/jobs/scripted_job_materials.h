// JobMaterials for tests: a disk of folders and published versions that outlives a crash, and
// answers that come when the test says so.

#ifndef SERVER_JOBS_SCRIPTED_JOB_MATERIALS_H_
#define SERVER_JOBS_SCRIPTED_JOB_MATERIALS_H_

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/jobs/job_materials.h"

namespace megatrain {

// What is on disk.
struct ScriptedDisk {
  std::set<std::string> output_folders;
  std::map<std::string, std::string> versions;  // by job name
};

// Not thread-safe: test and controller share a thread.
class ScriptedJobMaterials final : public JobMaterials {
 public:
  explicit ScriptedJobMaterials(ScriptedDisk& disk) : disk_(disk) {}

  void Prepare(const v1::Job&, PreparedCallback done) override {
    waiting_.push_back([this, done] {
      done(preparation.ok() ? absl::StatusOr<Prepared>(Result()) : preparation);
    });
  }

  void StopPreparing(const std::string&) override {}

  std::string OutputFolder(const v1::Job& job) override {
    return absl::StrCat("/tmp/", job.name(), "/", job.attempt());
  }

  void Publish(const v1::Job& job, PublishedCallback done) override {
    waiting_.push_back([this, job, done] { done(PublishNow(job)); });
  }

  void Discard(const v1::Job& job) override { disk_.output_folders.erase(OutputFolder(job)); }

  // Gives every answer that is out.
  void Answer() {
    for (const auto& answer : std::exchange(waiting_, {})) {
      answer();
    }
  }

  bool HasQuestions() const { return !waiting_.empty(); }

  absl::Status preparation;  // of the next answers
  absl::Status publication;

 private:
  static Prepared Result() {
    Prepared prepared;
    prepared.model_path = "/model";
    prepared.data_path = "/data";
    return prepared;
  }

  absl::StatusOr<std::string> PublishNow(const v1::Job& job) {
    if (const auto known = disk_.versions.find(job.name()); known != disk_.versions.end()) {
      return known->second;
    }
    if (!publication.ok()) {
      return publication;
    }
    if (disk_.output_folders.erase(OutputFolder(job)) == 0) {
      return absl::NotFoundError(absl::StrCat("no folder ", OutputFolder(job)));
    }
    return disk_.versions[job.name()] =
               absl::StrCat(job.spec().output(), "/versions/", disk_.versions.size() + 1);
  }

  ScriptedDisk& disk_;
  std::vector<std::function<void()>> waiting_;
};

}  // namespace megatrain

#endif  // SERVER_JOBS_SCRIPTED_JOB_MATERIALS_H_
