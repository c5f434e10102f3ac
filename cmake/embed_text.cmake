# A text file as a constant of a program: cmake -DINPUT=FILE -DNAMESPACE=a::b -DNAME=kText -DOUTPUT=FILE.cpp -P this
file(READ ${INPUT} text)
file(WRITE ${OUTPUT} "#include <string_view>

namespace ${NAMESPACE} {
namespace {

constexpr char text[] = R\"embedded(${text})embedded\";

}  // namespace

extern const std::string_view ${NAME};
constexpr std::string_view ${NAME}(text, sizeof(text) - 1);

}  // namespace ${NAMESPACE}
")
