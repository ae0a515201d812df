#include "server/api/follow_stream.h"

#include "server/errors/errors.h"

namespace megatrain {

void FollowHub::Add(const std::string& topic, std::weak_ptr<Follower> follower) {
  bool draining = false;
  {
    MutexLock lock(&mutex_);
    followers_.emplace(topic, follower);
    draining = draining_;
  }
  if (const std::shared_ptr<Follower> living = follower.lock(); draining && living != nullptr) {
    living->OnDrain();
  }
}

void FollowHub::Notify(const std::string& topic) {
  std::vector<std::shared_ptr<Follower>> living;
  {
    MutexLock lock(&mutex_);
    ++version_;
    living = Living(&topic);
    changed_.NotifyAll();
  }
  for (const auto& follower : living) {
    follower->OnNews();
  }
}

void FollowHub::Tick(absl::Duration now) {
  std::vector<std::shared_ptr<Follower>> living;
  {
    MutexLock lock(&mutex_);
    living = Living(nullptr);
  }
  for (const auto& follower : living) {
    follower->OnTick(now);
  }
}

void FollowHub::Drain() {
  std::vector<std::shared_ptr<Follower>> living;
  {
    MutexLock lock(&mutex_);
    draining_ = true;
    living = Living(nullptr);
  }
  for (const auto& follower : living) {
    follower->OnDrain();
  }
}

int64_t FollowHub::Version() const {
  MutexLock lock(&mutex_);
  return version_;
}

void FollowHub::WaitPast(int64_t version, absl::Duration timeout) {
  MutexLock lock(&mutex_);
  if (version_ == version) {
    changed_.WaitFor(&mutex_, timeout);
  }
}

int FollowHub::OpenCount() const {
  MutexLock lock(&mutex_);
  int count = 0;
  for (const auto& [topic, follower] : followers_) {
    count += follower.expired() ? 0 : 1;
  }
  return count;
}

std::vector<std::shared_ptr<Follower>> FollowHub::Living(const std::string* topic) {
  std::vector<std::shared_ptr<Follower>> living;
  const auto begin = topic == nullptr ? followers_.begin() : followers_.lower_bound(*topic);
  const auto end = topic == nullptr ? followers_.end() : followers_.upper_bound(*topic);
  for (auto it = begin; it != end;) {
    std::shared_ptr<Follower> follower = it->second.lock();
    if (follower == nullptr) {
      it = followers_.erase(it);
    } else {
      living.push_back(std::move(follower));
      ++it;
    }
  }
  return living;
}

absl::Status SlowConsumer(const std::string& cursor) {
  return WithReason(absl::ResourceExhaustedError(
                        "the client did not read for too long: reconnect from the cursor"),
                    "SLOW_CONSUMER", {{"cursor", cursor}});
}

absl::Status StreamDrained(const std::string& cursor) {
  return WithReason(RetryLater("SERVER_DRAINING",
                               "the server is stopping: reconnect from the cursor when it is back",
                               absl::Seconds(5)),
                    "SERVER_DRAINING", {{"cursor", cursor}});
}

}  // namespace megatrain
