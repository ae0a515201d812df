#include "runtime/kernels/matmul_choices.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "runtime/base/bounded_json.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/write_file.h"

namespace megatrain {
namespace {

using Json = nlohmann::json;

constexpr JsonLimits kFileLimits{.size_bytes = int64_t{4} << 20, .depth = 4};

// Below this many operations a product is over in some 15 microseconds.
constexpr double kLeastOperations = 1e10;

constexpr std::array<std::pair<const char*, int64_t MatmulProblem::*>, 7> kSizes = {
    {{"m", &MatmulProblem::m},
     {"n", &MatmulProblem::n},
     {"k", &MatmulProblem::k},
     {"lda", &MatmulProblem::lda},
     {"ldb", &MatmulProblem::ldb},
     {"ldc", &MatmulProblem::ldc},
     {"ldd", &MatmulProblem::ldd}}};
constexpr std::array<std::pair<const char*, bool MatmulProblem::*>, 3> kFlags = {
    {{"transpose_a", &MatmulProblem::transpose_a},
     {"transpose_b", &MatmulProblem::transpose_b},
     {"bias", &MatmulProblem::has_bias}}};
constexpr std::array<std::pair<const char*, ComputeDtype MatmulProblem::*>, 2> kDtypes = {
    {{"input_dtype", &MatmulProblem::input_dtype}, {"output_dtype", &MatmulProblem::output_dtype}}};

constexpr char kIndex[] = "index";
constexpr size_t kEntryFields = kSizes.size() + kFlags.size() + kDtypes.size() + 1;

const char* DtypeName(ComputeDtype dtype) {
  return dtype == ComputeDtype::kBfloat16 ? "bf16" : "fp32";
}

Json EntryOf(const MatmulProblem& problem, int index) {
  Json entry;
  for (const auto& [name, member] : kSizes) {
    entry[name] = problem.*member;
  }
  for (const auto& [name, member] : kFlags) {
    entry[name] = problem.*member;
  }
  for (const auto& [name, member] : kDtypes) {
    entry[name] = DtypeName(problem.*member);
  }
  entry[kIndex] = index;
  return entry;
}

// `object`'s integer from `least` to `most`.
std::optional<int64_t> FindInteger(const Json& object, const char* name, int64_t least,
                                   int64_t most) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number_integer()) {
    return std::nullopt;
  }
  // Unsigned numbers beyond int64 come out negative.
  const auto value = found->get<int64_t>();
  return value >= least && value <= most ? std::optional(value) : std::nullopt;
}

bool ReadSizes(const Json& entry, MatmulProblem& problem) {
  constexpr int64_t kMostElements = int64_t{1} << 40;
  for (const auto& [name, member] : kSizes) {
    const std::optional<int64_t> value = FindInteger(entry, name, 1, kMostElements);
    if (!value) {
      return false;
    }
    problem.*member = *value;
  }
  return true;
}

bool ReadFlags(const Json& entry, MatmulProblem& problem) {
  for (const auto& [name, member] : kFlags) {
    const auto found = entry.find(name);
    if (found == entry.end() || !found->is_boolean()) {
      return false;
    }
    problem.*member = found->get<bool>();
  }
  return true;
}

bool ReadDtypes(const Json& entry, MatmulProblem& problem) {
  for (const auto& [name, member] : kDtypes) {
    const auto found = entry.find(name);
    if (found == entry.end() || (*found != "bf16" && *found != "fp32")) {
      return false;
    }
    problem.*member = *found == "bf16" ? ComputeDtype::kBfloat16 : ComputeDtype::kFloat32;
  }
  return true;
}

std::optional<MatmulChoices::value_type> ReadEntry(const Json& entry) {
  MatmulProblem problem{};
  if (!entry.is_object() || entry.size() != kEntryFields || !ReadSizes(entry, problem) ||
      !ReadFlags(entry, problem) || !ReadDtypes(entry, problem)) {
    return std::nullopt;
  }
  const std::optional<int64_t> index = FindInteger(entry, kIndex, 0, kMatmulCandidates - 1);
  return index ? std::optional(std::pair(problem, static_cast<int>(*index))) : std::nullopt;
}

absl::Status CheckMachine(const Json& file, const MatmulMachine& machine) {
  const auto gpu = file.find("gpu");
  const std::optional<int64_t> version = FindInteger(file, "cublaslt_version", 0, INT64_MAX);
  if (gpu == file.end() || !gpu->is_string() || !version) {
    return absl::InvalidArgumentError(
        "matrix product choices: \"gpu\" and \"cublaslt_version\" must be text and number");
  }
  if (const MatmulMachine found{gpu->get<std::string>(), *version}; !(found == machine)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "matrix product choices: measured on ", found.gpu, " with cuBLASLt ", found.library_version,
        ", but this is ", machine.gpu, " with ", machine.library_version));
  }
  return absl::OkStatus();
}

bool IsWorthMeasuring(const MatmulProblem& problem) {
  return problem.Operations() >= kLeastOperations;
}

std::vector<MatmulSample> MissingFrom(const MatmulChoices& choices,
                                      const std::vector<MatmulSample>& samples) {
  std::vector<MatmulSample> missing;
  std::set<MatmulProblem> seen;
  std::copy_if(samples.begin(), samples.end(), std::back_inserter(missing),
               [&](const MatmulSample& sample) {
                 return IsWorthMeasuring(sample.problem) && !choices.contains(sample.problem) &&
                        seen.insert(sample.problem).second;
               });
  return missing;
}

// The dimension that counts tokens: a weight gradient sums over them.
int64_t MatmulProblem::* TokensOf(const MatmulProblem& problem) {
  return problem.transpose_b ? &MatmulProblem::k : &MatmulProblem::n;
}

}  // namespace

const MatmulChoices::value_type* FindMatmulChoice(const MatmulChoices& choices,
                                                  const MatmulProblem& problem) {
  if (const auto own = choices.find(problem); own != choices.end()) {
    return &*own;
  }
  const auto tokens_of = TokensOf(problem);
  const int64_t tokens = problem.*tokens_of;
  const MatmulChoices::value_type* nearest = nullptr;
  int64_t nearest_tokens = kMostTimesTokens * tokens;
  for (const MatmulChoices::value_type& choice : choices) {
    MatmulProblem other = choice.first;
    const int64_t other_tokens = std::exchange(other.*tokens_of, tokens);
    if (other == problem && other_tokens > tokens && other_tokens <= nearest_tokens) {
      nearest = &choice;
      nearest_tokens = other_tokens;
    }
  }
  return nearest;
}

std::string DescribeMeasurement(const std::vector<MatmulSample>& samples) {
  return absl::StrCat("measures which of the library's algorithms are the fastest for ",
                      samples.size(), " matrix product", samples.size() == 1 ? "" : "s",
                      ", about a second each, once for these micro-batches on this machine");
}

int ChooseMatmul(const std::vector<double>& seconds) {
  constexpr double kLeastGain = 1.005;
  const auto best = std::min_element(seconds.begin(), seconds.end());
  return seconds.front() > kLeastGain * *best ? static_cast<int>(best - seconds.begin()) : 0;
}

std::string ToJson(const MatmulChoices& choices, const MatmulMachine& machine) {
  Json entries = Json::array();
  for (const auto& [problem, index] : choices) {
    entries.push_back(EntryOf(problem, index));
  }
  const Json file = {{"gpu", machine.gpu},
                     {"cublaslt_version", machine.library_version},
                     {"choices", std::move(entries)}};
  return file.dump(/*indent=*/-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

absl::StatusOr<MatmulChoices> ParseMatmulChoices(std::string_view text,
                                                 const MatmulMachine& machine) {
  MT_ASSIGN_OR_RETURN(const Json file, ParseBoundedJson(text, kFileLimits));
  if (!file.is_object() || !file.contains("choices") || !file["choices"].is_array()) {
    return absl::InvalidArgumentError("matrix product choices: there is no list of \"choices\"");
  }
  MT_RETURN_IF_ERROR(CheckMachine(file, machine));
  MatmulChoices choices;
  const Json& entries = file["choices"];
  for (size_t i = 0; i < entries.size(); ++i) {
    const std::optional<MatmulChoices::value_type> entry = ReadEntry(entries[i]);
    if (!entry || !choices.insert(*entry).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("matrix product choices: entry ", i, " is broken or repeats another"));
    }
  }
  return choices;
}

MatmulChoicesFile::MatmulChoicesFile(FileSystem& files, std::string path, MatmulMachine machine)
    : files_(files), path_(std::move(path)), machine_(std::move(machine)) {}

absl::StatusOr<MatmulChoices> MatmulChoicesFile::Load() {
  MT_ASSIGN_OR_RETURN(const std::string text, files_.ReadFile(path_, kFileLimits.size_bytes));
  return ParseMatmulChoices(text, machine_);
}

absl::Status MatmulChoicesFile::Save(const MatmulChoices& choices) {
  MT_RETURN_IF_ERROR(files_.MakeFolders(FolderOfFile(path_)));
  return ReplaceFile(files_, path_, ToJson(choices, machine_));
}

absl::StatusOr<MatmulChoices> MatmulChoicesFile::Complete(const std::vector<MatmulSample>& samples,
                                                          const Measure& measure) {
  MatmulChoices choices;
  if (absl::StatusOr<MatmulChoices> kept = Load(); kept.ok()) {
    choices = *std::move(kept);
  }
  const std::vector<MatmulSample> missing = MissingFrom(choices, samples);
  if (missing.empty()) {
    return choices;
  }
  MT_ASSIGN_OR_RETURN(MatmulChoices measured, measure(missing));
  choices.merge(measured);
  MT_RETURN_IF_ERROR(Save(choices));
  return choices;
}

}  // namespace megatrain
