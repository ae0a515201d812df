// One suite for every JobStore.

#include "server/jobs/job_store.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/virtual_clock.h"
#include "server/database/database.h"
#include "server/database/request_log.h"
#include "server/errors/errors.h"
#include "server/jobs/memory_job_store.h"
#include "server/jobs/sqlite_job_store.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct OpenStore {
  std::unique_ptr<Database> database;
  std::unique_ptr<JobStore> store;
};

OpenStore OpenMemory(const std::string&, const Clock&) {
  return {nullptr, std::make_unique<MemoryJobStore>()};
}

OpenStore OpenSqlite(const std::string& path, const Clock& clock) {
  auto database = Database::Open(
      path, {RequestLogMigration(), JobStoreMigration(), JobWishMigration(), JobResumeMigration()});
  EXPECT_TRUE(database.ok()) << database.status();
  auto store = std::make_unique<SqliteJobStore>(**database, clock);
  return {*std::move(database), std::move(store)};
}

struct Kind {
  std::string name;
  std::function<OpenStore(const std::string&, const Clock&)> open;
};

class JobStoreTest : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    std::string test = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    for (char& c : test) {
      c = c == '/' ? '-' : c;
    }
    path_ = ::testing::TempDir() + "/" + test;
    opened_ = GetParam().open(path_, clock_);
  }

  JobStore& store() { return *opened_.store; }

  v1::Job Create(const std::string& id, const std::string& request_id = "") {
    v1::Job job;
    job.set_name("jobs/" + id);
    job.set_state(v1::JOB_STATE_QUEUED);
    auto created = store().Create({"CreateJob", request_id, id}, job);
    EXPECT_TRUE(created.ok()) << created.status();
    return *std::move(created);
  }

  JobRecord Get(const std::string& id) {
    auto record = store().Get("jobs/" + id);
    EXPECT_TRUE(record.ok()) << record.status();
    return *std::move(record);
  }

  void SetState(const std::string& id, v1::JobState state) {
    JobRecord record = Get(id);
    record.job.set_state(state);
    EXPECT_TRUE(store().Update(record, {}).ok());
  }

  static std::vector<std::string> Ids(const absl::StatusOr<std::vector<JobRecord>>& records) {
    EXPECT_TRUE(records.ok()) << records.status();
    std::vector<std::string> ids;
    for (const JobRecord& record : *records) {
      ids.push_back(JobIdOf(record.job));
    }
    return ids;
  }

  static v1::JobEvent Step(int64_t step) {
    v1::JobEvent event;
    event.mutable_step()->set_step(step);
    return event;
  }

  VirtualClock clock_;
  std::string path_;
  OpenStore opened_;
};

TEST_P(JobStoreTest, CreatesAndGets) {
  const v1::Job created = Create("a");
  EXPECT_EQ(Get("a").job.SerializeAsString(), created.SerializeAsString());
  EXPECT_NE(created.etag(), "");
  EXPECT_EQ(store().Get("jobs/b").status().code(), absl::StatusCode::kNotFound);
}

TEST_P(JobStoreTest, ANameIsTakenOnce) {
  Create("a");
  v1::Job again;
  again.set_name("jobs/a");
  const absl::Status status = store().Create({"CreateJob", "", ""}, again).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(ReasonOf(status), "RESOURCE_EXISTS");
}

TEST_P(JobStoreTest, ARepeatedCreateGetsTheFirstAnswer) {
  const v1::Job first = Create("a", "id-1");
  SetState("a", v1::JOB_STATE_RUNNING);
  const v1::Job repeat = Create("a", "id-1");
  EXPECT_EQ(repeat.SerializeAsString(), first.SerializeAsString());
  EXPECT_EQ((*store().FindCreated({"CreateJob", "id-1", "a"}))->SerializeAsString(),
            first.SerializeAsString());
  EXPECT_FALSE(store().FindCreated({"CreateJob", "id-2", "a"})->has_value());
  EXPECT_EQ(ReasonOf(store().FindCreated({"CreateJob", "id-1", "b"}).status()),
            "REQUEST_ID_REUSED");
  v1::Job other;
  other.set_name("jobs/b");
  EXPECT_EQ(ReasonOf(store().Create({"CreateJob", "id-1", "b"}, other).status()),
            "REQUEST_ID_REUSED");
  EXPECT_EQ(store().Get("jobs/b").status().code(), absl::StatusCode::kNotFound);
}

TEST_P(JobStoreTest, ARefusedCreateIsNoAnswer) {
  Create("a");
  v1::Job job;
  job.set_name("jobs/a");
  EXPECT_FALSE(store().Create({"CreateJob", "id-1", "a"}, job).ok());
  job.set_name("jobs/b");
  EXPECT_TRUE(store().Create({"CreateJob", "id-1", "b"}, job).ok());
}

TEST_P(JobStoreTest, ListsNewestFirstByPagesAndStates) {
  for (const std::string id : {"a", "b", "c", "d"}) {
    Create(id);
  }
  SetState("b", v1::JOB_STATE_FAILED);
  SetState("c", v1::JOB_STATE_RUNNING);
  EXPECT_THAT(Ids(store().List({{}, 0, 2})), ElementsAre("d", "c"));
  EXPECT_THAT(Ids(store().List({{}, Get("c").acceptance, 9})), ElementsAre("b", "a"));
  EXPECT_THAT(Ids(store().List({{v1::JOB_STATE_QUEUED, v1::JOB_STATE_FAILED}, 0, 9})),
              ElementsAre("d", "b", "a"));
  EXPECT_THAT(Ids(store().Active()), ElementsAre("a", "c", "d"));
}

TEST_P(JobStoreTest, AnUpdateLeavesTheWishAndChangesTheEtag) {
  Create("a");
  JobRecord record = Get("a");
  ASSERT_TRUE(store().RecordWish({"CancelJob", "", ""}, "jobs/a", JobWish()).ok());
  record.job.set_phase("training");
  ASSERT_TRUE(store().Update(record, {}).ok());
  EXPECT_TRUE(Get("a").wishes.cancel);
  EXPECT_EQ(Get("a").job.phase(), "training");
  EXPECT_NE(Get("a").job.etag(), record.job.etag());
  record.job.set_name("jobs/none");
  EXPECT_EQ(store().Update(record, {}).code(), absl::StatusCode::kNotFound);
}

TEST_P(JobStoreTest, OnlyAJobThatCanEndIsCancelled) {
  EXPECT_EQ(store().RecordWish({"CancelJob", "", ""}, "jobs/a", JobWish()).status().code(),
            absl::StatusCode::kNotFound);
  Create("a");
  ASSERT_TRUE(store().RecordWish({"CancelJob", "id-1", ""}, "jobs/a", JobWish()).ok());
  SetState("a", v1::JOB_STATE_CANCELLED);
  EXPECT_TRUE(store().RecordWish({"CancelJob", "id-2", ""}, "jobs/a", JobWish()).ok());
  SetState("a", v1::JOB_STATE_FAILED);
  EXPECT_TRUE(store().RecordWish({"CancelJob", "id-1", ""}, "jobs/a", JobWish()).ok())
      << "a repeat";
  EXPECT_EQ(ReasonOf(store().RecordWish({"CancelJob", "id-3", ""}, "jobs/a", JobWish()).status()),
            "JOB_ENDED");
}

TEST_P(JobStoreTest, EventsHaveGapFreeSequences) {
  Create("a");
  Create("b");
  ASSERT_TRUE(store().Update(Get("a"), {Step(1), Step(2)}).ok());
  ASSERT_TRUE(store().Update(Get("b"), {Step(9)}).ok());
  ASSERT_TRUE(store().Update(Get("a"), {Step(3)}).ok());
  EXPECT_EQ(Get("a").last_sequence, 3);
  const auto all = store().Events("jobs/a", 0, 10);
  ASSERT_EQ(all->size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ((*all)[i].sequence(), i + 1);
    EXPECT_EQ((*all)[i].step().step(), i + 1);
  }
  EXPECT_EQ(store().Events("jobs/a", 1, 1)->front().step().step(), 2);
  EXPECT_THAT(*store().Events("jobs/a", 3, 10), IsEmpty());
  EXPECT_EQ(store().Events("jobs/none", 0, 1).status().code(), absl::StatusCode::kNotFound);
}

TEST_P(JobStoreTest, KeepsABoundedNumberOfEvents) {
  Create("a");
  std::vector<v1::JobEvent> events;
  for (int64_t i = 1; i <= kMaxEventsPerJob + 5; ++i) {
    events.push_back(Step(i));
  }
  ASSERT_TRUE(store().Update(Get("a"), events).ok());
  EXPECT_EQ(store().Events("jobs/a", 0, 1)->front().sequence(), 6);
  EXPECT_EQ(Get("a").last_sequence, kMaxEventsPerJob + 5);
}

TEST_P(JobStoreTest, WishesStandUntilTheyAreTakenBack) {
  Create("a");
  const auto wish = [this](JobWish::Kind kind, const std::string& id = "") {
    return store().RecordWish({"Wish", id, ""}, "jobs/a", {.kind = kind});
  };
  using Kind = JobWish::Kind;
  EXPECT_EQ(ReasonOf(wish(Kind::kSave).status()), "JOB_NOT_RUNNING");
  EXPECT_EQ(ReasonOf(wish(Kind::kResume).status()), "JOB_NOT_PAUSED");
  ASSERT_TRUE(wish(Kind::kPause).ok());
  EXPECT_TRUE(Get("a").wishes.pause);
  ASSERT_TRUE(wish(Kind::kResume).ok());
  EXPECT_FALSE(Get("a").wishes.pause);
  SetState("a", v1::JOB_STATE_RUNNING);
  ASSERT_TRUE(wish(Kind::kSave, "id-1").ok());
  ASSERT_TRUE(wish(Kind::kSave, "id-1").ok()) << "a repeat";
  EXPECT_EQ(Get("a").wishes.save_count, 1);
  JobRecord record = Get("a");
  record.saves_answered = 1;
  record.crash_count = 2;
  record.wishes = JobWishes();
  ASSERT_TRUE(store().Update(record, {}).ok());
  EXPECT_EQ(Get("a").saves_answered, 1);
  EXPECT_EQ(Get("a").crash_count, 2);
  EXPECT_EQ(Get("a").wishes.save_count, 1) << "no update changes a wish";
}

TEST_P(JobStoreTest, APausedJobCanGoOnFromAnotherCheckpoint) {
  Create("a");
  const JobWish wish{.kind = JobWish::Kind::kResume,
                     .start_checkpoint = "jobs/a/checkpoints/step-00000003",
                     .start_after_number = 7};
  SetState("a", v1::JOB_STATE_PAUSED);
  ASSERT_TRUE(store().RecordWish({"Wish", "", ""}, "jobs/a", wish).ok());
  EXPECT_EQ(Get("a").wishes.start_checkpoint, wish.start_checkpoint);
  EXPECT_EQ(Get("a").wishes.start_after_number, 7);
  SetState("a", v1::JOB_STATE_FAILED);
  EXPECT_EQ(ReasonOf(store().RecordWish({"Wish", "", ""}, "jobs/a", wish).status()), "JOB_ENDED");
}

INSTANTIATE_TEST_SUITE_P(Stores, JobStoreTest,
                         ::testing::Values(Kind{"Memory", OpenMemory}, Kind{"Sqlite", OpenSqlite}),
                         [](const auto& info) { return info.param.name; });

TEST(SqliteJobStoreTest, EverythingIsThereAfterAReopen) {
  const std::string path = ::testing::TempDir() + "/reopen";
  VirtualClock clock;
  v1::Job job;
  job.set_name("jobs/a");
  job.set_state(v1::JOB_STATE_QUEUED);
  {
    const OpenStore first = OpenSqlite(path, clock);
    ASSERT_TRUE(first.store->Create({"CreateJob", "id-1", "a"}, job).ok());
    v1::JobEvent event;
    event.mutable_step()->set_loss(0.5);
    ASSERT_TRUE(first.store->Update(*first.store->Get("jobs/a"), {event}).ok());
    ASSERT_TRUE(first.store->RecordWish({"CancelJob", "", ""}, "jobs/a", JobWish()).ok());
  }
  const OpenStore second = OpenSqlite(path, clock);
  EXPECT_TRUE(second.store->Get("jobs/a")->wishes.cancel);
  EXPECT_EQ(second.store->Events("jobs/a", 0, 9)->front().step().loss(), 0.5);
  EXPECT_TRUE(second.store->Create({"CreateJob", "id-1", "a"}, job).ok()) << "a repeat";
}

}  // namespace
}  // namespace megatrain
