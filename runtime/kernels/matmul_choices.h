// Which of cuBLASLt's algorithms this machine multiplies fastest with. Its heuristic's first is
// often some percent behind another. They are measured once and kept in a file, so that equal runs
// keep equal bits.

#ifndef RUNTIME_KERNELS_MATMUL_CHOICES_H_
#define RUNTIME_KERNELS_MATMUL_CHOICES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/file_system.h"
#include "runtime/kernels/matmul_call.h"

namespace megatrain {

// So many algorithms of the heuristic's list are compared.
inline constexpr int kMatmulCandidates = 16;

// Places in the heuristic's list, from 0.
using MatmulChoices = std::map<MatmulProblem, int>;

// The entry whose algorithm a product takes: its own, else that of the same product of the next
// larger number of tokens, at most so many times as many: micro-batches are rarely full. Null for
// none.
inline constexpr int64_t kMostTimesTokens = 2;
const MatmulChoices::value_type* FindMatmulChoice(const MatmulChoices& choices,
                                                  const MatmulProblem& problem);

// A product as a model computes it.
struct MatmulSample {
  std::string name;  // such as "gate_up dW"
  MatmulProblem problem;
  bool accumulates;  // adds to C
};

// What a table holds for: another GPU or library has another list.
struct MatmulMachine {
  std::string gpu;
  int64_t library_version;
  bool operator==(const MatmulMachine&) const = default;
};

// What whoever waits until these are measured is told.
std::string DescribeMeasurement(const std::vector<MatmulSample>& samples);

// The fastest of the candidates' times; 0 unless it beats the first by more than 0.5 %, which
// measurements cannot tell apart. `seconds` is not empty.
int ChooseMatmul(const std::vector<double>& seconds);

std::string ToJson(const MatmulChoices& choices, const MatmulMachine& machine);

// Of ToJson's text. INVALID_ARGUMENT that says where it is broken, FAILED_PRECONDITION when it is
// another machine's.
absl::StatusOr<MatmulChoices> ParseMatmulChoices(std::string_view text,
                                                 const MatmulMachine& machine);

// The table of one machine in a file.
class MatmulChoicesFile {
 public:
  // `files` outlives this.
  MatmulChoicesFile(FileSystem& files, std::string path, MatmulMachine machine);

  // All of the file, or why not: see ParseMatmulChoices; NOT_FOUND for none.
  absl::StatusOr<MatmulChoices> Load();

  // Replaces the file as a whole, and makes its folder.
  absl::Status Save(const MatmulChoices& choices);

  using Measure =
      std::function<absl::StatusOr<MatmulChoices>(const std::vector<MatmulSample>& samples)>;
  // The table with all of `samples` in it that are large enough to pay. Those that the file lacks
  // are measured and added to it. A file that cannot be loaded is replaced.
  absl::StatusOr<MatmulChoices> Complete(const std::vector<MatmulSample>& samples,
                                         const Measure& measure);

 private:
  FileSystem& files_;
  const std::string path_;
  const MatmulMachine machine_;
};

}  // namespace megatrain

#endif  // RUNTIME_KERNELS_MATMUL_CHOICES_H_
