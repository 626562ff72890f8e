package slackwater;

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Locale;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.api.TableResult;

/**
 * Runs the statements of a file, until their inputs end: java … slackwater.RunSql FILE PARALLELISM [PORT], in this
 * process, or on the cluster whose JobManager takes jobs at this port of this machine.
 *
 * <p>Settings are Flink's defaults, except that objects are reused between chained operators, which is what Flink's
 * documentation advises for speed. Statements are separated by a semicolon at the end of a line. The last line of
 * output contains the CPU time that the kernel has counted for the process.
 */
public final class RunSql {
  private RunSql() {}

  public static void main(String[] arguments) throws Exception {
    Configuration configuration = new Configuration();
    configuration.setString("parallelism.default", arguments[1]);
    configuration.setString("pipeline.object-reuse", "true");
    configuration.setString("table.local-time-zone", "UTC");
    if (arguments.length > 2) {
      configuration.setString("execution.target", "remote");
      configuration.setString("rest.address", "127.0.0.1");
      configuration.setString("rest.port", arguments[2]);
    }
    TableEnvironment tables =
        TableEnvironment.create(
            EnvironmentSettings.newInstance()
                .inStreamingMode()
                .withConfiguration(configuration)
                .build());
    String text = new String(Files.readAllBytes(Path.of(arguments[0])), StandardCharsets.UTF_8);
    for (String statement : text.replaceAll("(?m)--.*$", "").split(";\\s*\n")) {
      if (statement.isBlank()) {
        continue;
      }
      TableResult result = tables.executeSql(statement);
      if (statement.stripLeading().startsWith("INSERT")) {
        result.await();
      }
    }
    OperatingSystemMXBean system =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    System.out.printf(Locale.ROOT, "%n{\"cpu_s\": %.3f}%n", system.getProcessCpuTime() / 1e9);
    // Threads of the cluster would keep the process running for seconds.
    System.exit(0);
  }
}
