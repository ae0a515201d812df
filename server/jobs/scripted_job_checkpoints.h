// JobCheckpoints for tests: folders and rows that outlive a crash.

#ifndef SERVER_JOBS_SCRIPTED_JOB_CHECKPOINTS_H_
#define SERVER_JOBS_SCRIPTED_JOB_CHECKPOINTS_H_

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/jobs/job_checkpoints.h"

namespace megatrain {

// What is on disk, by job name: the steps of the engine's folders, and the rows in the order of
// their commits.
struct ScriptedCheckpointDisk {
  std::map<std::string, std::map<std::string, int64_t>> folders;  // id -> step
  std::map<std::string, std::vector<v1::Checkpoint>> rows;
};

// Not thread-safe: test and controller share a thread.
class ScriptedJobCheckpoints final : public JobCheckpoints {
 public:
  // `write` is asked before each write: an error, and nothing is written.
  ScriptedJobCheckpoints(ScriptedCheckpointDisk& disk, std::function<absl::Status()> write)
      : disk_(disk), write_(std::move(write)) {}

  absl::StatusOr<std::string> Folder(const v1::Job& job) override {
    return absl::StrCat("/", job.name(), "/checkpoints");
  }

  absl::StatusOr<JobStart> StartOf(const JobRecord& record) override {
    if (!reading.ok()) {
      return reading;
    }
    Adopt(record.job.name());
    const std::vector<v1::Checkpoint>& rows = disk_.rows[record.job.name()];
    const bool wished = !record.wishes.start_checkpoint.empty() &&
                        static_cast<int64_t>(rows.size()) <= record.wishes.start_after_number;
    JobStart start;
    for (auto row = rows.rbegin(); row != rows.rend(); ++row) {
      if (!row->damage().empty()) {
        absl::StrAppend(&start.passed_over, row->name(), " is damaged: ", row->damage());
      } else if (!wished || row->name() == record.wishes.start_checkpoint) {
        start.checkpoint = *row;
        break;
      }
    }
    return start;
  }

  absl::StatusOr<std::vector<v1::JobEvent>> Figures(const v1::Checkpoint&) override {
    return figures;
  }

  absl::StatusOr<v1::Checkpoint> Commit(const JobRecord& record,
                                        const std::string& checkpoint_id) override {
    const auto& folders = disk_.folders[record.job.name()];
    const auto folder = folders.find(checkpoint_id);
    if (folder == folders.end()) {
      return absl::NotFoundError(absl::StrCat("no folder ", checkpoint_id));
    }
    if (absl::Status status = write_(); !status.ok()) {
      return status;
    }
    return Insert(record.job.name(), folder->first, folder->second);
  }

  void Settle(const JobRecord& record) override { Adopt(record.job.name()); }

  absl::StatusOr<std::string> Best(const v1::Job&) override { return std::string(); }

  absl::Status MarkDamaged(const v1::Checkpoint& checkpoint, const std::string& damage) override {
    const std::string& name = checkpoint.name();
    if (absl::Status status = write_(); !status.ok()) {
      return status;
    }
    for (v1::Checkpoint& row : disk_.rows[name.substr(0, name.find("/checkpoints/"))]) {
      row.set_damage(row.name() == name ? damage : row.damage());
    }
    return absl::OkStatus();
  }

  absl::Status CheckRoom(const v1::Job&) override { return room; }

  // What a new process finds: folders without a row are adopted.
  void Reconcile() {
    for (const auto& [job, folders] : disk_.folders) {
      Adopt(job);
    }
  }

  absl::Status room;
  absl::Status reading;  // of what is on disk, for a start
  std::vector<v1::JobEvent> figures;

 private:
  void Adopt(const std::string& job) {
    for (const auto& [id, step] : disk_.folders[job]) {
      Insert(job, id, step);
    }
  }

  v1::Checkpoint Insert(const std::string& job, const std::string& id, int64_t step) {
    std::vector<v1::Checkpoint>& rows = disk_.rows[job];
    const std::string name = absl::StrCat(job, "/checkpoints/", id);
    for (const v1::Checkpoint& row : rows) {
      if (row.name() == name) {
        return row;
      }
    }
    v1::Checkpoint& row = rows.emplace_back();
    row.set_name(name);
    row.set_step(step);
    row.set_path(absl::StrCat("/", name));
    return row;
  }

  ScriptedCheckpointDisk& disk_;
  const std::function<absl::Status()> write_;
};

}  // namespace megatrain

#endif  // SERVER_JOBS_SCRIPTED_JOB_CHECKPOINTS_H_
