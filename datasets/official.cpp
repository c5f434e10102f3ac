#include "datasets/official.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "datasets/data_files.h"
#include "harness/core/data_origin.h"
#include "harness/core/error.h"
#include "harness/core/files.h"

namespace kvarena::datasets {
namespace {

constexpr auto kSums = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"bfcl/BFCL_v4_irrelevance.json", "2b6ed4c2e992cdcf5f1678a701851f944bef7550ee026ed1ddb89efed5be01a6"},
    {"bfcl/BFCL_v4_memory.json", "40fc21d4528af53c6b44204def89e81515d0101654229e2c2e82bbf5f047b14f"},
    {"bfcl/BFCL_v4_multi_turn_base.json", "1a21a995d06fd6f20ba55de7bced30ef953ec35e998f502ec2ecf4d66ef1c43a"},
    {"bfcl/BFCL_v4_multi_turn_long_context.json", "78c3268c5cc8e97c0f4ec6c811b3b9a2bba14323b1830b7a874b06d822749324"},
    {"bfcl/BFCL_v4_multi_turn_miss_func.json", "87d28ce10e37d864b72de85d5732eef2a867b241d6c1c99b4ae682c9e3ea921c"},
    {"bfcl/BFCL_v4_multi_turn_miss_param.json", "f0c66dda3795f5f53e3e1c0cc8ba0246b6761c8f58bdba8317203bf451ab8838"},
    {"bfcl/BFCL_v4_multiple.json", "aef168155ebd74b7ac2401198b201343bc7d16d7a3d7e0d4e6d8ee82c6969b2a"},
    {"bfcl/BFCL_v4_parallel.json", "19f51a82eff42e5d62541aa500115a056eb78f437c2ba1f10415fd7c8e5dda84"},
    {"bfcl/BFCL_v4_parallel_multiple.json", "8863ea8433239f55c5f016154cf0830853c89f693c6ea270396a2fa121960579"},
    {"bfcl/BFCL_v4_simple_python.json", "82dd63ba502eb2520c6b5d1d9a5c4b590e03ff261565175561f6228a367d1991"},
    {"bfcl/memory_prereq_conversation/memory_customer.json",
     "806ac91e558e3d933e526ecc0c286e417657f76a3c9b9073eef830a532eb4eb2"},
    {"bfcl/memory_prereq_conversation/memory_finance.json",
     "3cef1f235667f479b8f45c7082247454b2129ee88fe4fbcdbc53fd2cdf495b75"},
    {"bfcl/memory_prereq_conversation/memory_healthcare.json",
     "56e7bd7b2e7c01efe81f1e0be85149ea3886bb2d9cb59f90e9d9e27b91f4604d"},
    {"bfcl/memory_prereq_conversation/memory_notetaker.json",
     "07f3239ef2e9e1421901f05d3c8192469fa129324e124a47bcb35ff9c7785c91"},
    {"bfcl/memory_prereq_conversation/memory_student.json",
     "e2d6c32e9e2671c61f682e845dcdafd9eee7c9f3e2d5da1615d3afd2aeecf2f0"},
    {"bfcl/multi_turn_func_doc/gorilla_file_system.json",
     "c4c1b741c71e2a17c97a5dc9c4a91d89978c4eaece56494d14272d5df6c650e9"},
    {"bfcl/multi_turn_func_doc/math_api.json", "83fa31708c89442bdcf12ac4dfbe3be8663ec9183a1b1524a9fda98164bc7e0b"},
    {"bfcl/multi_turn_func_doc/memory_kv.json", "96480cd9cbd3d4a34cd8f78879bc6622731768a26e080f7a34782e36e3402287"},
    {"bfcl/multi_turn_func_doc/memory_rec_sum.json",
     "4ceff946df00983c7f0b95d1b70ae402247f3312fb898bac9ecfa1de52f5a783"},
    {"bfcl/multi_turn_func_doc/memory_vector.json", "917908ca99fdd01e203274b7ec6eb2347fa91d57f3c6341e20945cc9c9d746cf"},
    {"bfcl/multi_turn_func_doc/message_api.json", "4d58ea933a5d2b280d7a52366617fb47fecd333d7b0e08e724db6fa12fb5f847"},
    {"bfcl/multi_turn_func_doc/posting_api.json", "87f9fc404a06e4107d7c366f1399c596440e84c16cb119faf374b2f532d86e8b"},
    {"bfcl/multi_turn_func_doc/ticket_api.json", "31324e0380782664fe82ba05bd23517808ad55692b45a5fe7c3d4d395fe4f0f8"},
    {"bfcl/multi_turn_func_doc/trading_bot.json", "1a7933fd8f0cb8fbec38aeae05cb8c24132747cad4904fe1c13ac3d01fc22c2d"},
    {"bfcl/multi_turn_func_doc/travel_booking.json",
     "f17b950c13adddf41d0848077df58788252e4c2e7cad5cfa71c8c4bf04f57b26"},
    {"bfcl/multi_turn_func_doc/vehicle_control.json",
     "0c8a66292844874ef7b168f343bc394d8615d2d9e1f4387999a9ee23011eac78"},
    {"bfcl/possible_answer/BFCL_v4_memory.json", "2355cf8d842f94af6bcb7bfa6ad2f9e472bc6d825d6ecd45702cfc41e27d7e5d"},
    {"bfcl/possible_answer/BFCL_v4_multi_turn_base.json",
     "1fee67823b317571649177dd89d63969feaae4e810cc7448ee55ba797fb7c8fc"},
    {"bfcl/possible_answer/BFCL_v4_multi_turn_long_context.json",
     "e82aa0e839c39d23c64a05834f7ae024d7c9738ec21738ecee78dc876e3d0d18"},
    {"bfcl/possible_answer/BFCL_v4_multi_turn_miss_func.json",
     "69e679b806d1c871b05393a4b95583bb973248e5b8d96c2d7f4ca05e29fc32e6"},
    {"bfcl/possible_answer/BFCL_v4_multi_turn_miss_param.json",
     "59c442901779e2c31c33abcd566d032e03736e5ad8069de2fe05489873046ecf"},
    {"bfcl/possible_answer/BFCL_v4_multiple.json", "244e00ce9395df948bcafc7bee64e8f9c87ef70887587d83cae45b13699f3047"},
    {"bfcl/possible_answer/BFCL_v4_parallel.json", "8a6aa19c1adddc6a5a2f7e40f9dbf30cc7e95815e7b830c90589ab318229e0f0"},
    {"bfcl/possible_answer/BFCL_v4_parallel_multiple.json",
     "5ebf24f458c1f16300c05505d83d6f0a1b68b79be273a033febd0d4f840507e3"},
    {"bfcl/possible_answer/BFCL_v4_simple_python.json",
     "90cd5bc653690ee8e459b5b3f3fc9458606f7f3fcbf795bb51b7dc581f8c86dc"},
    {"gsm8k/test.jsonl", "3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14"},
    {"helmet/prompts/asqa_revised.json", "99ebb9d7371895dc352a7f9135ef9e84c3757a9d9d4ce2091b4e2b1d7c39299c"},
    {"helmet/prompts/qampari_revised.json", "d73e184ec6d9fd6ba821ea1e537d2dec96be602aa693706862acc1b3d9586104"},
    {"ifeval/input_data.jsonl", "67ffeee0fcb87c317c5b08a2de85557b4a7e96ada6178aa645b4954fe4b53d49"},
    {"lmcache-agent-trace/189f0222310bd8eee310f204e91b9c84.jsonl",
     "df8e61ad8e072e77858755a5853ad9b6cccebe40a54135636a28d9801f114d45"},
    {"locomo/locomo10.json", "79fa87e90f04081343b8c8debecb80a9a6842b76a7aa537dc9fdf651ea698ff4"},
    {"longgenbench-gsm8k/LongGenBench_prompt.txt", "93073b0264ee3bee516f1014460de3569d155a2a7647a8d3b2c5788f90717977"},
    {"longgenbench/Dataset_long.json", "f61048da5ecfb1b717584af8b2dc5999198459e9b95aceedde2dcc6f5cdd35e7"},
    {"longgenbench/Dataset_short.json", "3cf98c4badc330a93d1010f57f6658b09f2ebc2e6428a3df083b652d902d96e8"},
    {"longproc/countdown_0.5k.jsonl", "65420cf1063c37c23d8b2e09d2541b0cd3e882d638ff295b33916c4be50f20d4"},
    {"longproc/countdown_2k.jsonl", "0dc3e8cf355e837d5b160e1bc007391c24d282f3166b9f08bb24f64b08cfb52a"},
    {"longproc/countdown_8k.jsonl", "1c2e19c431f26b5e1f00af4699d61f57e357bfbf70de984142f41aada500efd8"},
    {"longproc/html_to_tsv_0.5k.jsonl", "b274d7362fe5458ce7f6c140421ff16aacd87c76531872f012baf3776c245f02"},
    {"longproc/html_to_tsv_2k.jsonl", "51d584af05e1affb2ba3aae163907dc06eeba4a157dfac9c5244c96a988ad2f4"},
    {"longproc/html_to_tsv_8k.jsonl", "38b50f378073e7338b131eed1116eb81c24fcb74e27c33204144571b9d041f5f"},
    {"longproc/path_traversal_0.5k.jsonl", "819d1f9ed3e08d1591f1f77eb5c77fa665d3190946e241025e2f1730b9e28f3b"},
    {"longproc/pseudo_to_code_0.5k.jsonl", "f9ba858edfc35d8a9739ef01b4ef7014ca7b9b7c88d81a3288702f2735c7961e"},
    {"longproc/pseudo_to_code_2k.jsonl", "985da925d55a277adba97acb0aa4429b683611e900239f1bb044e8747fecdc27"},
    {"longproc/tom_tracking_0.5k.jsonl", "a1785bb394e514e2cabbe1355ee9572e5e480945bade48a6bb0396a7ee50b65f"},
    {"longproc/tom_tracking_2k.jsonl", "9134315b6f15cf9718b92f6abf1b7bc4adae20a24a625a0fc6af9ae9a88ef0b8"},
    {"longwriter/longbench_write.jsonl", "1f6e99497cc24d65894d65e014062f398ba946ebdd254b7f8b339e48d3ab5779"},
    {"longwriter/longbench_write_en.jsonl", "87800927761f340e48899e4df5d47fb7211ad4936a63420dbfa979660414259f"},
    {"longwriter/longwrite_ruler.jsonl", "a1d4ebf0df0fa1600567691d11c9a52de3037c4a372970ed2e8f52f2889e0a62"},
    {"math_500/test.jsonl", "35dc41080a3680858b27fa7e0533d2d547825316fc5dafe5d316f4ccc5a06132"},
    {"pisanitizer/gov_report.json", "8a6f185baee5a61ec12f1aa4c1f64778e68125d0d1bc84007206dd5f212d27a2"},
    {"pisanitizer/hotpotqa.json", "4589061b4e05ba1cd829c7b1fb4ecf2c4e4e057be5bd4e67ce5c4cd3e68f94d5"},
    {"pisanitizer/lcc.json", "5bc2b192cbb406b3332282de1dabeeff14a29e027bae053b2e2a4b9a9b4cbdab"},
    {"pisanitizer/multi_news.json", "50ea5778538b6c7bfb5deb20419b2526e593ae39d164478b919d57b7937def36"},
    {"pisanitizer/passage_retrieval_en.json", "37bec7d2d47ef5675c65c5838e7c259a14c15e7b59d0c6219ebd2fa1250016bd"},
    {"pisanitizer/qasper.json", "80af60163c0fc3dd78251460229b85f162bad73ca3a8ad53dd606f1faac821d8"},
});

int64_t count_samples(const WorkloadEntry& entry, const std::filesystem::path& data_dir) {
  SampleReader reader = make_workload(entry.info.name, "{}", entry.info.name)->open({.data_dir = data_dir});
  int64_t count = 0;
  while (reader.next()) ++count;
  return count;
}

/// How a file that the download fetches differs from the official one; empty where all that are here are the official.
std::string difference(const WorkloadInfo& info, const std::filesystem::path& root) {
  for (const auto& [name, sum] : kSums) {
    const bool fetched = info.download.find(fmt::format("$KVARENA_DATA/{} ", name)) != std::string::npos;
    if (!fetched || !std::filesystem::exists(root / name)) continue;
    const std::string found = sha256(MappedFile(root / name).bytes());
    if (found != sum) return fmt::format("{} has SHA-256 {}, the official file {}", name, found, sum);
  }
  return "";
}

}  // namespace

std::string_view name(FileState state) {
  switch (state) {
    case FileState::official: return "official";
    case FileState::as_many: return "as many samples";
    case FileState::differs: return "differs";
    case FileState::made: return kProjectMade;
    case FileState::missing: return "missing";
    case FileState::generated: return "generated";
  }
  return "";
}

std::optional<std::string_view> official_sha256(std::string_view file) {
  const auto* const found = std::ranges::find(kSums, file, &std::pair<std::string_view, std::string_view>::first);
  if (found == kSums.end()) return std::nullopt;
  return found->second;
}

FileCheck check_data(const WorkloadEntry& entry, const std::filesystem::path& data_dir) {
  const WorkloadInfo& info = entry.info;
  if (info.files.empty()) return {.state = FileState::generated};
  const auto file = find_data_file(info, data_dir);
  if (!file) return {};
  FileCheck check{.path = file->path, .sha256 = sha256(MappedFile(file->path).bytes())};
  try {
    check.samples = count_samples(entry, file->root);
  } catch (const UserError& error) {
    check.state = FileState::differs;
    check.detail = error.what();
    return check;
  }
  const auto official = official_sha256(fmt::format("{}/{}", info.folder, file->path.filename().string()));
  if (file->origin == kProjectMade) {
    check.state = FileState::made;
  } else if (official && *official != check.sha256) {
    check.state = FileState::differs;
    check.detail = fmt::format("SHA-256 {}, the official file has {}", check.sha256, *official);
  } else if (check.detail = difference(info, file->root); !check.detail.empty()) {
    check.state = FileState::differs;
  } else if (check.samples != info.samples) {
    check.state = FileState::differs;
    check.detail = fmt::format("{} samples, the official file has {}", check.samples, info.samples);
  } else {
    check.state = official ? FileState::official : FileState::as_many;
  }
  return check;
}

}  // namespace kvarena::datasets
