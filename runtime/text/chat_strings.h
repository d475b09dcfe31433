/* chat_strings.h - the fixed texts of the chat form, byte for byte those of the model's reference encoder (MIT licence).
 *
 * The tests compare each with tests/data/chat/strings.json. For chat_form.c only. */
#ifndef RUNTIME_TEXT_CHAT_STRINGS_H
#define RUNTIME_TEXT_CHAT_STRINGS_H

/* clang-format off */
#define CHAT_BOS         "<｜begin▁of▁sentence｜>"
#define CHAT_EOS         "<｜end▁of▁sentence｜>"
#define CHAT_USER_MARK   "<｜User｜>"
#define CHAT_ANSWER_MARK "<｜Assistant｜>"
#define CHAT_THINK_OPEN  "<think>"
#define CHAT_THINK_CLOSE "</think>"
#define CHAT_DSML        "｜DSML｜"
#define CHAT_LATEST      "<｜latest_reminder｜>"

static const char CHAT_EFFORT_ABSOLUTE[] =
    "Reasoning Effort: Absolute maximum with no shortcuts permitted.\n"
    "You MUST be very thorough in your thinking and comprehensively decompose the problem to resolve the root cause, "
    "rigorously stress-testing your logic against all potential paths, edge cases, and adversarial scenarios.\n"
    "Explicitly write out your entire deliberation process, documenting every intermediate step, considered alternative, "
    "and rejected hypothesis to ensure absolutely no assumption is left unchecked.\n\n";

static const char CHAT_EFFORT_BEYOND[] =
    "Reasoning Effort: Beyond maximum — exhaustive, relentless, and uncompromising.\n"
    "You MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: exhaustively decompose the "
    "problem into its most fundamental components, trace every causal chain to its root, and resolve the underlying "
    "cause rather than any surface symptom.\n"
    "Do not stop reasoning until you have independently verified the solution from multiple angles and are certain that "
    "no assumption remains unchecked and no error remains undiscovered.\n\n";

/* The schemas of the tools, one a line, stand between the two. */
static const char CHAT_TOOLS_HEAD[] =
    "## Tools\n\n"
    "You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "
    "\"<｜DSML｜tool_calls>\" block like the following:\n\n"
    "<｜DSML｜tool_calls>\n"
    "<｜DSML｜invoke name=\"$TOOL_NAME\">\n"
    "<｜DSML｜parameter name=\"$PARAMETER_NAME\" string=\"true|false\">$PARAMETER_VALUE</｜DSML｜parameter>\n"
    "...\n"
    "</｜DSML｜invoke>\n"
    "<｜DSML｜invoke name=\"$TOOL_NAME2\">\n"
    "...\n"
    "</｜DSML｜invoke>\n"
    "</｜DSML｜tool_calls>\n\n"
    "String parameters should be specified as is and set `string=\"true\"`. For all other types (numbers, booleans, "
    "arrays, objects), pass the value in JSON format and set `string=\"false\"`.\n\n"
    "If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside "
    "<think>...</think> BEFORE any tool calls or final response.\n\n"
    "Otherwise, output directly after </think> with tool calls or final response.\n\n"
    "### Available Tool Schemas\n\n";

static const char CHAT_TOOLS_TAIL[] =
    "\n\n"
    "You MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n";

static const char CHAT_RESPONSE_FORMAT[] =
    "## Response Format:\n\n"
    "You MUST strictly adhere to the following schema to reply:\n";
/* clang-format on */

#endif
